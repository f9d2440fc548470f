#!/bin/sh
# The demo's workload, in the directory given: a database-like mix, a stream, a repository, an archive.
set -eu
cd "$1"
fio --name=mix --rw=randrw --rwmixread=70 --bs=4k --size=16m --number_ios=2000 --fsync=100 --ioengine=psync \
    --randseed=1 --output=fio.txt
dd if=/dev/zero of=stream bs=1M count=32 conv=fsync status=none
git init -q repository
cd repository
i=0
while [ $i -lt 40 ]; do
    i=$((i + 1))
    printf 'file %s\n' $i >"file-$i"
done
git add .
git -c user.name=demo -c user.email=demo@localhost commit -q -m 'Forty files'
cd ..
tar -cf repository.tar repository
rm -r repository
