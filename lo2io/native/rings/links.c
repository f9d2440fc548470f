/*
 * Chains of linked requests. A chain is submitted by one thread in one go; its head waits until the last member is there.
 * A member that was refused is in the chain, too, though no event says so.
 */
#include "rings/requests.h"

static bool goes_on(const ring_request *r) { return (r->sqe_flags & SQE_CHAINS) != 0; }

static void append(engine *e, ring_request *before, ring_request *r)
{
    ring_request *head = request_of(e, before->head);
    if (!head)
        head = before;
    ring_request *last = request_of(e, head->tail); /* older kernels name the head, whoever is the last */
    if (last && last != r)
        before = last;
    if (before == r)
        return;
    r->head = ref_to(e, head);
    r->previous = ref_to(e, before);
    r->previous_id = before->id;
    before->next = head->tail = ref_to(e, r);
}

/* The chain is complete: its head is executed now. */
static void close_chain(engine *e, ring_thread *th, const ring_request *last, int64_t time)
{
    ring_request *head = request_of(e, last->head);
    th->chain.id = 0;
    if (!head || !head->alive || (head->traits & LO2_TRAIT_OLDER) || head->executed || head->refused || head->culprit || head->punt != UNKNOWN ||
        (head->sqe_flags & (SQE_DRAIN | SQE_ASYNC)) || head->opcode == OP_LINK_TIMEOUT || location_of(e, head) != th)
        return;
    th->running = ref_to(e, head);
    th->running_since = time;
    request_executed(e, head, th, time, true);
}

/* Whether it is executed at once. */
static bool is_free(const ring_request *r)
{
    return !(r->sqe_flags & (SQE_CHAINS | SQE_DRAIN | SQE_ASYNC)) && r->opcode != OP_LINK_TIMEOUT;
}

static ring_request *open_chain(engine *e, ring_thread *th, const ring_request *r)
{
    ring_request *last = request_of(e, th->chain);
    return last && last != r && last->ring == r->ring ? last : NULL;
}

void chain_submitted(engine *e, ring_thread *th, ring_request *r)
{
    const ring_request *last = open_chain(e, th, r);
    if (!last && is_free(r)) {
        th->running = ref_to(e, r);
        th->running_since = r->submit;
        request_executed(e, r, th, r->submit, true);
    }
    if (!last) /* else it is a member, as the link event behind this one will say */
        th->chain = goes_on(r) ? ref_to(e, r) : (request_ref){0, 0};
}

void chain_refused(engine *e, ring_thread *th, ring_request *r)
{
    ring_request *last = open_chain(e, th, r);
    if (last) {
        append(e, last, r);
        ring_request *head = request_of(e, r->head);
        if (head && !head->culprit && !head->refused) {
            head->culprit = r->id;
            head->inferred |= LO2_INFERRED_CULPRIT;
        }
    }
    th->chain = goes_on(r) ? ref_to(e, r) : (request_ref){0, 0};
}

void on_link(engine *e, ring_thread *th, const ring_sample *s)
{
    ring_request *r = request_by_address(e, s->req, s->ctx, ring_has(s, LO2_FIELD_RING_CTX));
    ring_request *before = request_by_address(e, s->other, s->ctx, ring_has(s, LO2_FIELD_RING_CTX));
    if (!r || !before || !r->alive || r == before || r->previous_id) {
        e->totals.nr_ring_unclear += th != NULL;
        return;
    }
    append(e, before, r);
    if (!th)
        return;
    if (goes_on(r))
        th->chain = ref_to(e, r);
    else
        close_chain(e, th, r, s->time);
}

/* The kernel names as culprit the request whose end it is at; that may be a victim itself, of a refused member. */
void on_fail_link(engine *e, const ring_sample *s)
{
    bool has_ctx = ring_has(s, LO2_FIELD_RING_CTX);
    const ring_request *culprit = request_by_address(e, s->req, s->ctx, has_ctx);
    ring_request *victim = request_by_address(e, s->other, s->ctx, has_ctx);
    if (!culprit || !victim || !victim->alive) {
        e->totals.nr_ring_unclear += culprit || victim;
        return;
    }
    if (victim == culprit)
        return;
    if (!victim->refused && !victim->culprit) {
        victim->culprit = culprit->culprit ? culprit->culprit : culprit->id;
        if (culprit->culprit)
            victim->inferred |= LO2_INFERRED_CULPRIT;
    }
    if (culprit->sqe_flags & SQE_SKIP)
        request_passed_over(e, victim, s->time);
}

void chain_member_ended(engine *e, ring_request *r)
{
    ring_request *next = request_of(e, r->next);
    if (!next || next == r)
        return;
    next->before_known = r->complete != UNKNOWN;
    next->before_time = r->complete;
    next->before_runs = r->end_runs;
    next->before_in_run = r->in_run;
    next->before_traits = r->traits;
}

/* Had the silent request before it come back from a device, it would have run one run of task work later. */
void chain_shows_silent(engine *e, const ring_request *r, const ring_thread *th)
{
    ring_request *before = request_of(e, r->previous);
    uint32_t runs = r->seen_executed && r->worker == NONE ? r->runs : th->runs;
    if (before && before->alive && (before->sqe_flags & SQE_SKIP) && !before->nr_completions && before->at_submission &&
        th == location_of(e, before) && runs == before->runs)
        before->shown_inline = true;
}
