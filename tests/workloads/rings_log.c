/* The ground truth: arguments and results, kept in memory and printed at the end as JSON lines. */
#include "rings.h"

enum { CHUNK = 1024, MAX_CHUNKS = 4096, MAX_RINGS = 64, MAX_NOTES = 64 };

typedef struct {
    const char *scenario, *call;
    int ring, instance, tid;
    int64_t asked, wanted, flags, result;
} batch;

typedef struct {
    const char *scenario;
    int ring, instance, result;
    unsigned flags;
    uint64_t user_data;
} message;

/* Chunks, so that entries in use never move. */
static request *requests[MAX_CHUNKS];
static size_t nr_requests;
static batch *batches[MAX_CHUNKS];
static size_t nr_batches;
static message messages[CHUNK];
static size_t nr_messages;
static ring *rings[MAX_RINGS];
static size_t nr_rings;
static struct {
    const char *scenario, *text;
} notes[MAX_NOTES];
static size_t nr_notes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *slot(void **chunks, size_t *count, size_t size)
{
    size_t index = (*count)++;
    if (index / CHUNK >= MAX_CHUNKS)
        die("the log is full");
    if (!chunks[index / CHUNK])
        chunks[index / CHUNK] = calloc(CHUNK, size);
    return (char *)chunks[index / CHUNK] + index % CHUNK * size;
}

request *log_request(void)
{
    pthread_mutex_lock(&lock);
    request *q = slot((void **)requests, &nr_requests, sizeof *q);
    pthread_mutex_unlock(&lock);
    q->scenario = running;
    q->fd2 = q->file_index = q->buffer = -1, q->previous = q->culprit = q->waker = q->target = NO_NUMBER;
    return q;
}

static request *request_at(size_t index)
{
    return &requests[index / CHUNK][index % CHUNK];
}

/* The oldest one that has not completed. Nobody can tell completions with equal user_data apart. */
request *find_request(const ring *r, uint64_t user_data)
{
    static _Thread_local size_t first;    /* all before it have completed */
    request *found = NULL;
    pthread_mutex_lock(&lock);
    while (first < nr_requests && request_at(first)->done)
        first++;
    for (size_t i = first; i < nr_requests && !found; i++) {
        request *q = request_at(i);
        if (!q->done && q->instance == r->instance && q->user_data == user_data)
            found = q;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* A completion without a request on this ring, sent by a request of another one. */
void log_message(const ring *r, const struct io_uring_cqe *cqe)
{
    pthread_mutex_lock(&lock);
    if (nr_messages >= CHUNK)
        die("the log is full");
    messages[nr_messages++] =
        (message){running, r->fd, r->instance, cqe->res, cqe->flags, cqe->user_data};
    pthread_mutex_unlock(&lock);
}

void log_batch(const char *call, const ring *r, int64_t asked, int64_t wanted, int64_t flags, int64_t result)
{
    pthread_mutex_lock(&lock);
    batch *b = slot((void **)batches, &nr_batches, sizeof *b);
    *b = (batch){running, call, r->fd, r->instance, gettid_(), asked, wanted, flags, result};
    pthread_mutex_unlock(&lock);
}

void log_batch_of(int tid, const ring *r, int64_t asked, int64_t result)
{
    log_batch("io_uring_enter", r, asked, 0, 0, result);
    size_t last = nr_batches - 1;
    batches[last / CHUNK][last % CHUNK].tid = tid;
}

void log_ring(ring *r)
{
    pthread_mutex_lock(&lock);
    if (nr_rings >= MAX_RINGS)
        die("the log is full");
    r->scenario = running;
    rings[nr_rings++] = r;
    pthread_mutex_unlock(&lock);
}

/* Something that this machine cannot do, or that a test must know. */
void log_note(const char *text)
{
    if (nr_notes < MAX_NOTES)
        notes[nr_notes].scenario = running, notes[nr_notes++].text = text;
}

/* One word, or a list of words between bars. */
static void print_choice(FILE *to, const char *key, const char *words)
{
    bool several = strchr(words, '|');
    fprintf(to, several ? ", \"%s\": [\"" : ", \"%s\": \"", key);
    for (; *words; words++)
        *words == '|' ? fputs("\", \"", to) : fputc(*words, to);
    fputs(several ? "\"]" : "\"", to);
}

static void print_or_null(FILE *to, const char *key, int64_t value)
{
    if (value == NO_NUMBER)
        fprintf(to, ", \"%s\": null", key);
    else
        fprintf(to, ", \"%s\": %lld", key, (long long)value);
}

static const char *status_of(const request *q)
{
    if (q->status)
        return q->status;
    if (!q->cqes)
        return "in flight";
    return q->results[q->nr_results - 1] == -ECANCELED ? "cancelled" : "completed";
}

static const char *truth_of(bool value)
{
    return value ? "true" : "false";
}

static void print_request(FILE *to, const request *q)
{
    fprintf(to, "{\"kind\": \"request\", \"scenario\": \"%s\", \"ring\": %d, \"instance\": %d, \"opcode_number\": %d",
            q->scenario, q->ring, q->instance, q->opcode);
    fprintf(to, ", \"fd\": %d, \"fixed\": %s, \"user_data\": %llu, \"sqe_flags\": %u, \"offset\": %lld", q->fixed ? -1 : q->fd,
            truth_of(q->fixed), (unsigned long long)q->user_data, q->sqe_flags, (long long)q->offset);
    fprintf(to, ", \"length\": %u", q->length);
    if (q->file_index >= 0)
        fprintf(to, ", \"file_index\": %d", q->file_index);
    if (q->buffer >= 0)
        fprintf(to, ", \"buffer_index\": %d", q->buffer);
    if (q->nr_results)
        fprintf(to, ", \"result\": %lld, \"cqe_flags\": %u, \"last_cqe_flags\": %u",
                (long long)q->results[q->nr_results - 1], q->cqe_flags, q->last_flags);
    if (*q->file)
        fprintf(to, ", \"file\": \"%s\"", q->file);
    if (q->fd2 >= 0)
        fprintf(to, ", \"fd2\": %d", q->fd2);
    if (*q->file2)
        fprintf(to, ", \"file2\": \"%s\"", q->file2);
    if (q->nr_results > 1 || (q->nr_results && q->cqes > 1)) {
        fprintf(to, ", \"results\": [");
        for (unsigned i = 0; i < q->nr_results; i++)
            fprintf(to, "%s%lld", i ? ", " : "", (long long)q->results[i]);
        fprintf(to, "]");
    }
    fprintf(to, ", \"cqes\": %u, \"tid\": %d, \"sqpoll\": %s", q->cqes, q->sqpoll ? -1 : q->tid, truth_of(q->sqpoll));
    if (q->paths)
        print_choice(to, "path", q->paths);
    print_choice(to, "status", status_of(q));
    print_or_null(to, "previous", q->previous);
    print_or_null(to, "culprit", q->culprit);
    if (q->target != NO_NUMBER)
        print_or_null(to, "target", q->target);
    if (q->waker != NO_NUMBER)
        print_or_null(to, "waker", q->waker);
    fprintf(to, ", \"drain\": %s, \"overflow\": %s, \"notified\": %s}\n", truth_of(q->drain), truth_of(q->overflow),
            truth_of(q->notified));
}

void print_log(FILE *to)
{
    for (size_t i = 0; i < nr_notes; i++)
        fprintf(to, "{\"kind\": \"note\", \"scenario\": \"%s\", \"text\": \"%s\"}\n", notes[i].scenario, notes[i].text);
    for (size_t i = 0; i < nr_rings; i++) {
        const ring *r = rings[i];
        fprintf(to, "{\"kind\": \"ring\", \"scenario\": \"%s\", \"ring\": %d, \"instance\": %d, \"sq_entries\": %u", r->scenario,
                r->fd, r->instance, r->sq_entries);
        fprintf(to, ", \"cq_entries\": %u", r->cq_entries);
        fprintf(to, ", \"flags\": %u, \"overflows\": %u, \"tid\": %d, \"type\": \"%s\"}\n", r->flags, r->overflows, r->tid,
                r->sqes ? "io_uring" : "libaio");
    }
    for (size_t i = 0; i < nr_batches; i++) {
        const batch *b = &batches[i / CHUNK][i % CHUNK];
        fprintf(to, "{\"kind\": \"batch\", \"scenario\": \"%s\", \"call\": \"%s\", \"ring\": %d, \"instance\": %d, \"tid\": %d", b->scenario, b->call, b->ring,
                b->instance, b->tid);
        fprintf(to, ", \"asked\": %lld, \"%s\": %lld, \"wanted\": %lld, \"flags\": %lld, \"result\": %lld}\n",
                (long long)b->asked, strstr(b->call, "getevents") ? "taken" : "submitted",
                (long long)(b->result < 0 ? 0 : b->result), (long long)b->wanted, (long long)b->flags, (long long)b->result);
    }
    for (size_t i = 0; i < nr_messages; i++) {
        const message *m = &messages[i];
        fprintf(to, "{\"kind\": \"message\", \"scenario\": \"%s\", \"ring\": %d, \"instance\": %d", m->scenario, m->ring, m->instance);
        fprintf(to, ", \"user_data\": %llu, \"result\": %d", (unsigned long long)m->user_data, m->result);
        fprintf(to, ", \"flags\": %u}\n", m->flags);
    }
    for (size_t i = 0; i < nr_requests; i++)
        print_request(to, request_at(i));
}
