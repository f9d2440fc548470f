#!/bin/sh
# The demo's workload, in the given directory: a database-like mix, a mix through io_uring, a stream, a repository, an
# archive.
set -eu
cd "$1"
fio --name=mix --rw=randrw --rwmixread=70 --bs=4k --size=16m --number_ios=2000 --fsync=100 --ioengine=psync \
    --randseed=1 --output=fio.txt
# Direct I/O, sixteen at a time, four by four. Blocks are never adjacent, for the kernel would merge them. Pauses let
# lo2io see the file's name. Without io_uring, the rest of the demo still runs.
fio --name=ring --filename=mix.0.0 --rw=randrw --rwmixread=80 --bs=4k --blockalign=8k --norandommap --size=16m \
    --number_ios=1000 --runtime=2 --fsync=32 --thinktime=30ms --thinktime_blocks=100 --direct=1 --ioengine=io_uring \
    --iodepth=16 --iodepth_batch_submit=4 --iodepth_batch_complete_min=4 --randseed=2 --output=ring.txt 2>&1 ||
    echo 'without io_uring: fio could not use it here'
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
