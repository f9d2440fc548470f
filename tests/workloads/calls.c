/*
 * Makes every core call a known number of times, and prints what it did: the ground truth of test_record_calls.py.
 *
 * usage: calls DIRECTORY LOG     (fd 0 must be a readable file of 64 bytes)
 *
 * Each thread makes two calls that nobody else makes, before and after the calls that count (resume(), leave()). So
 * loaders, C libraries and the upkeep of the log do not matter. The journal lies in a shared mapping, which needs no call.
 * At the end, after the last marker, it is written to standard output as JSON lines:
 *   tid, call, fd, fd2, path, path2, requested, offset, known, result
 * `offset` is the true position, null if there is none. `known`: a tracer that saw every call must know the offset.
 * `result` is the return value or -errno. path is the file behind fd, null if fd was not open.
 */
#include "calls.h"

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    self = "/proc/self/exe", directory = argv[1], log_path = argv[2];
    map_log();
    if (argc > 4) {
        after_exec(atoll(argv[4]));
        return 0;
    }
    char link[MAX_PATH] = {0};
    if (readlink("/proc/self/fd/0", link, sizeof link - 1) < 0)
        die("fd 0");
    set_name(0, link);
    resume();
    do_blind("read", 0, 40, 0);
    do_blind("read", 0, 40, 40);              /* short: 24 */
    positions();
    explicit_offsets();
    every_open();
    errors();
    reused_fds();
    duplicates();
    sizes_and_syncs();
    copies();
    received_fd();
    threads();
    children();
    leave();
    print_log();
    return 0;
}
