/*
 * Makes each request of io_uring and libaio in a known way, and prints it: the ground truth of test_rings*.py.
 *
 * usage: rings [--dir DIRECTORY] [--device DISK] [--truth FILE] [--count N] [--ready FILE] [--wait-for FILE] SCENARIO...
 *        rings --list
 *
 * Each scenario is one behaviour. Arguments and results go to FILE (default: standard output) as JSON lines, one object
 * each, with the scenario's name:
 *   kind request  ring, instance, opcode_number, fd (-1: none, or a registered file), fixed, file_index and
 *                 buffer_index (places of registered ones), file (behind fd, or registered), fd2
 *                 and file2 (which splice and tee read), user_data, sqe_flags, offset and length (as in the SQE, whatever
 *                 they mean there), result (of the last completion but notifications), results (if several), cqes,
 *                 cqe_flags, last_cqe_flags (of a notification, too), tid (of the submitter; -1: the ring's own thread,
 *                 sqpoll), path (one, or a list of those the kernel may take; absent: any), status (likewise), previous
 *                 (user_data of the link before it), culprit (user_data of the request that broke its chain), target
 *                 (user_data of the request that it cancels), waker (tid), drain, overflow, notified
 *   kind batch    call, ring, tid, asked, submitted or taken, wanted (the least), flags, result (or -errno)
 *   kind ring     ring, sq_entries, cq_entries, flags, overflows, tid, type
 *   kind message  a completion that another request sent to this ring: ring, user_data, result, flags
 *   kind note     something that this machine cannot do
 * `instance` counts rings in the order of their creation, for descriptors are used again. Values that the program cannot
 * know exactly are left out.
 */
#include "rings.h"

#include <getopt.h>
#include <sys/mman.h>

static const scenario *const groups[] = {
    file_scenarios, poll_scenarios, link_scenarios, end_scenarios, worker_scenarios, ring_scenarios, aio_scenarios,
};
unsigned long count = 4096;

static const scenario *find_scenario(const char *name)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const scenario *s = groups[g]; s->name; s++)
            if (!strcmp(s->name, name))
                return s;
    fprintf(stderr, "rings: no scenario %s (see --list)\n", name);
    exit(2);
}

static void run(const char *name)
{
    const scenario *s = find_scenario(name);
    running = s->name;
    s->run();
}

static void list(void)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const scenario *s = groups[g]; s->name; s++)
            printf("%-18s %s\n", s->name, s->about);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'd'},   {"device", required_argument, NULL, 'b'},
        {"truth", required_argument, NULL, 't'}, {"count", required_argument, NULL, 'n'},
        {"ready", required_argument, NULL, 'r'}, {"wait-for", required_argument, NULL, 'w'},
        {"list", no_argument, NULL, 'l'},        {NULL, 0, NULL, 0},
    };
    const char *truth = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        switch (option) {
        case 'd': directory = optarg; break;
        case 'b': device = optarg; break;
        case 't': truth = optarg; break;
        case 'n': count = strtoul(optarg, NULL, 0); break;
        case 'r': ready_file = optarg; break;
        case 'w': wait_for = optarg; break;
        case 'l': list(); return 0;
        default: return 2;
        }
    }
    if (optind == argc) {
        fprintf(stderr, "usage: rings [--dir DIRECTORY] [--truth FILE] SCENARIO... | --list\n");
        return 2;
    }
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (arena == MAP_FAILED)
        die("mmap");
    for (int i = optind; i < argc; i++)
        run(argv[i]);
    FILE *to = truth ? fopen(truth, "w") : stdout;
    if (!to)
        die(truth);
    print_log(to);
    if (fflush(to))
        die("writing the log");
    return 0;                             /* rings that are still open end with the process */
}
