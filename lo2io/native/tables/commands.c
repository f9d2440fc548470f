/* Command lines of processes: BPF programs tell them at exec, and /proc has them. */
#include "tables/commands.h"
#include "tables/texts.h"

/* A text that was read before the last exec belongs to an older program. */
void on_command(engine *e, process *p, const char *text, uint32_t length, bool cut, int64_t begin)
{
    if (p->command_since != UNKNOWN && p->command_since > begin)
        return;
    while (length && !text[length - 1])
        length--;
    if (!length) /* a kernel thread, or a process in the middle of an exec */
        return;
    uint32_t index = text_of(e, text, length);
    text_release(e, p->command);
    p->command = index;
    p->command_cut = cut;
}

void command_ends(engine *e, process *p, int64_t time)
{
    text_release(e, p->command);
    p->command = NONE;
    p->command_cut = false;
    p->command_since = time;
}

void on_kernel_exec(engine *e, task *t, const uint8_t *record, uint32_t size, int64_t time)
{
    lo2_kernel_exec exec;
    memcpy(&exec, record, sizeof exec);
    on_command(e, &e->processes.at[t->process], (const char *)record + sizeof exec, size - (uint32_t)sizeof exec,
               exec.cut, time);
}
