/*
 * Works on files in every way that hides which file it was, and prints which: the ground truth of test_names_*.py.
 *
 * usage: names --dir DIRECTORY --journal FILE [--truth FILE] [--disk TYPE=DEVICE]... SCENARIO...
 *        names --list
 *
 * Each scenario is one edge case, and has a folder of its own below DIRECTORY (absolute, without symbolic links). Each
 * call that counts has a number. Right before it, the thread makes a call that nobody else makes, lseek(-1, MARK +
 * number), so that a tracer's row is found whatever else is recorded (`follows`: the call stands right after the last
 * noted one). The truth goes to FILE, or to standard output, as JSON lines, one for each call. All strings that a
 * program chose are in hexadecimal:
 *   id, scenario, pid, tid, call, result (or -errno), fd (the argument; -1: none)
 *   opens      the call returns a descriptor, and the rest is about that one
 *   names      true names of the descriptor's file at its opening, as /proc shows them, but from outside of chroots
 *   know       must: a tracer that reads the kernel's tables knows one of the names. may: or it says that the name is
 *              unknown. none: there is no name. any: this program cannot tell
 *   link       the link in /proc/self/fd, of calls that leave time for a look (before the call; opens: after it);
 *              inside: from inside of a chroot
 *   inode, major, minor, mode, links, mount   statx(2) at the same time
 *   given, given2          path arguments
 *   directory, directory2  their directories, null if absolute
 */
#include "names.h"

#include <getopt.h>

static const scenario *const groups[] = {
    file_scenarios, change_scenarios, mount_scenarios, disk_scenarios, kind_scenarios, pass_scenarios, race_scenarios,
    path_scenarios,
};
static struct {
    const char *type, *device;
} disks[8];
static size_t nr_disks;

const char *disk_of(const char *type)
{
    for (size_t i = 0; i < nr_disks; i++)
        if (!strcmp(disks[i].type, type))
            return disks[i].device;
    errno = ENODEV;
    die(type);
}

static void add_disk(char *option)
{
    char *equals = strchr(option, '=');
    if (!equals || nr_disks == sizeof disks / sizeof *disks) {
        fprintf(stderr, "names: --disk TYPE=DEVICE\n");
        exit(2);
    }
    *equals = 0;
    disks[nr_disks].type = option;
    disks[nr_disks++].device = equals + 1;
}

static const scenario *find_scenario(const char *name)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const scenario *s = groups[g]; s->name; s++)
            if (!strcmp(s->name, name))
                return s;
    fprintf(stderr, "names: no scenario %s (see --list)\n", name);
    exit(2);
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
        {"dir", required_argument, NULL, 'd'},  {"journal", required_argument, NULL, 'j'},
        {"truth", required_argument, NULL, 't'}, {"disk", required_argument, NULL, 'k'},
        {"list", no_argument, NULL, 'l'},        {NULL, 0, NULL, 0},
    };
    const char *truth = NULL, *journal = NULL;
    if (argc > 1 && !strcmp(argv[1], "--after-exec"))
        return after_exec(argv + 2);
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        switch (option) {
        case 'd': directory = optarg; break;
        case 'j': journal = optarg; break;
        case 't': truth = optarg; break;
        case 'k': add_disk(optarg); break;
        case 'l': list(); return 0;
        default: return 2;
        }
    }
    if (optind == argc || !directory || !journal) {
        fprintf(stderr, "usage: names --dir DIRECTORY --journal FILE [--truth FILE] [--disk TYPE=DEVICE]... SCENARIO... | --list\n");
        return 2;
    }
    self_path = "/proc/self/exe";
    open_journal(journal, true);
    for (int i = optind; i < argc; i++) {
        const scenario *s = find_scenario(argv[i]);
        begin_scenario(s->name);
        s->run();
    }
    FILE *to = truth ? fopen(truth, "w") : stdout;
    if (!to)
        die(truth);
    print_journal(to);
    if (fflush(to))
        die("writing the truth");
    return 0;
}
