/*
 * Requests of rings in memory. All lie in one pool, and are found by their kernel address, or by ring and user_data.
 *
 * An address belongs to one request of all rings at a time. So the address is the key, and the ring only confirms it.
 * The request stays known by its address after its end, for some events come later than the CQE, until the address is
 * used again.
 *
 * The bucket holds only the oldest of the requests with equal ring, user_data and class. The others queue after it in the
 * order of submission (data_next, data_older). So many equal ones cost no more than one.
 */
#include "hash/hash.h"
#include "rings/requests.h"

enum { MOST_ENDED = 1 << 17, FIRST_BUCKETS = 1 << 10 };

static uint32_t *address_bucket(ring_request_set *set, uint64_t address)
{
    return &set->addresses[HASH_WORDS(address) & (set->nr_buckets - 1)];
}

static uint32_t *data_bucket(ring_request_set *set, uint64_t ctx, uint64_t user_data, uint8_t data_class)
{
    return &set->data[HASH_WORDS(ctx, user_data, data_class) & (set->nr_buckets - 1)];
}

/* ---- by address ---- */

static void address_link(ring_request_set *set, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    uint32_t *bucket = address_bucket(set, r->address);
    r->next_address = *bucket;
    r->known = true;
    *bucket = index;
}

static void address_unlink(ring_request_set *set, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    uint32_t *at = address_bucket(set, r->address);
    while (*at != index)
        at = &set->requests.at[*at].next_address;
    *at = r->next_address;
    r->known = false;
}

ring_request *request_by_address(engine *e, uint64_t address, uint64_t ctx, bool has_ctx)
{
    ring_request_set *set = e->ring_requests;
    if (!address || !set->nr_buckets)
        return NULL;
    for (uint32_t i = *address_bucket(set, address); i != NONE; i = set->requests.at[i].next_address)
        if (set->requests.at[i].address == address && (!has_ctx || set->requests.at[i].ctx == ctx))
            return &set->requests.at[i];
    return NULL;
}

/*
 * The last request at the event's address. If it lives and has another user_data, its end and the start of the event's
 * request were lost. But POLL_REMOVE may change the user_data of a poll.
 */
ring_request *request_at_address(engine *e, const ring_sample *s)
{
    ring_request *r = request_by_address(e, s->req, s->ctx, ring_has(s, LO2_FIELD_RING_CTX));
    bool other = r && r->alive && ring_has(s, LO2_FIELD_RING_USER_DATA) && r->user_data != s->user_data;
    if (!other || opcode_has(e, r->opcode, LO2_OPCODE_READINESS) || r->opcode == NO_OPCODE)
        return r;
    request_replaced(e, r, s->time);
    return NULL;
}

/* ---- by ring and user_data ---- */

static bool same_data(const ring_request *r, uint64_t ctx, uint64_t user_data, uint8_t data_class)
{
    return r->user_data == user_data && r->ctx == ctx && r->data_class == data_class;
}

static uint32_t *data_oldest(ring_request_set *set, uint64_t ctx, uint64_t user_data, uint8_t data_class)
{
    uint32_t *at = data_bucket(set, ctx, user_data, data_class);
    while (*at != NONE && !same_data(&set->requests.at[*at], ctx, user_data, data_class))
        at = &set->requests.at[*at].data_chain;
    return at;
}

static void data_link(ring_request_set *set, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    uint32_t *at = data_oldest(set, r->ctx, r->user_data, r->data_class);
    r->data_next = r->data_older = NONE;
    if (*at == NONE) {
        r->data_chain = NONE;
        r->data_last = index;
        *at = index;
        return;
    }
    ring_request *oldest = &set->requests.at[*at];
    r->data_older = oldest->data_last;
    set->requests.at[oldest->data_last].data_next = index;
    oldest->data_last = index;
}

static void data_unlink(ring_request_set *set, uint32_t index)
{
    ring_request *all = set->requests.at, *r = &all[index];
    if (r->data_older != NONE && r->data_next != NONE) {
        all[r->data_older].data_next = r->data_next;
        all[r->data_next].data_older = r->data_older;
        return;
    }
    uint32_t *at = data_oldest(set, r->ctx, r->user_data, r->data_class);
    if (r->data_older != NONE) { /* the last in its queue */
        all[r->data_older].data_next = NONE;
        all[*at].data_last = r->data_older;
    } else if (r->data_next != NONE) { /* the first in its queue: the next one takes its place in the bucket */
        all[r->data_next].data_older = NONE;
        all[r->data_next].data_last = r->data_last;
        all[r->data_next].data_chain = r->data_chain;
        *at = r->data_next;
    } else {
        *at = r->data_chain;
    }
}

ring_request *request_by_data(engine *e, uint64_t ctx, uint64_t user_data, uint8_t data_class, bool *several)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = set->nr_buckets ? *data_oldest(set, ctx, user_data, data_class) : NONE;
    if (index == NONE)
        return NULL;
    *several |= set->requests.at[index].data_next != NONE;
    return &set->requests.at[index];
}

ring_request *request_newest(engine *e, uint64_t ctx, uint64_t user_data)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = set->nr_buckets ? *data_oldest(set, ctx, user_data, DATA_SINGLE) : NONE;
    return index == NONE ? NULL : &set->requests.at[set->requests.at[index].data_last];
}

void request_change_class(engine *e, ring_request *r, uint8_t data_class)
{
    if (r->data_class == data_class)
        return;
    data_unlink(e->ring_requests, index_of(e, r));
    r->data_class = data_class;
    data_link(e->ring_requests, index_of(e, r));
}

/* ---- lists ---- */

static void list_add(ring_request_set *set, request_list *list, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    r->older = list->count ? list->last : NONE;
    r->newer = NONE;
    *(list->count ? &set->requests.at[list->last].newer : &list->first) = index;
    list->last = index;
    list->count++;
}

static void list_remove(ring_request_set *set, request_list *list, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    *(r->older == NONE ? &list->first : &set->requests.at[r->older].newer) = r->newer;
    *(r->newer == NONE ? &list->last : &set->requests.at[r->newer].older) = r->older;
    list->count--;
}

static void of_ring_add(ring_request_set *set, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    while (set->of_ring.count <= r->ring)
        set->of_ring.at[set->of_ring.count++] = NONE;
    r->ring_older = NONE; /* the newest comes first */
    r->ring_newer = set->of_ring.at[r->ring];
    if (r->ring_newer != NONE)
        set->requests.at[r->ring_newer].ring_older = index;
    set->of_ring.at[r->ring] = index;
}

static void of_ring_remove(ring_request_set *set, uint32_t index)
{
    ring_request *r = &set->requests.at[index];
    *(r->ring_older == NONE ? &set->of_ring.at[r->ring] : &set->requests.at[r->ring_older].ring_newer) = r->ring_newer;
    if (r->ring_newer != NONE)
        set->requests.at[r->ring_newer].ring_older = r->ring_older;
}

/* ---- the pool ---- */

static bool more_buckets(ring_request_set *set)
{
    if (set->nr_used < set->nr_buckets)
        return true;
    uint32_t size = set->nr_buckets ? set->nr_buckets * 2 : FIRST_BUCKETS;
    uint32_t *addresses = malloc(size * sizeof *addresses), *data = malloc(size * sizeof *data);
    if (!addresses || !data) {
        free(addresses);
        free(data);
        return false;
    }
    free(set->addresses);
    free(set->data);
    memset(addresses, 0xff, size * sizeof *addresses); /* NONE */
    memset(data, 0xff, size * sizeof *data);
    set->addresses = addresses;
    set->data = data;
    set->nr_buckets = size;
    for (uint32_t i = 0; i < set->requests.count; i++)
        if (set->requests.at[i].id && set->requests.at[i].known)
            address_link(set, i);
    for (uint32_t n = set->alive.count, i = set->alive.first; n--; i = set->requests.at[i].newer)
        data_link(set, i); /* in the order of submission */
    return true;
}

void request_let_go(engine *e, ring_request *r)
{
    ring_request_set *set = e->ring_requests;
    if (!r->id || r->alive || r->known || r->held)
        return;
    r->id = 0;
    set->nr_used--;
    GIVE_BACK(set, free_requests, index_of(e, r));
}

/* Makes the address unknown, and frees the place if nothing else refers to it. */
static void forget_address(engine *e, ring_request *r)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = index_of(e, r);
    address_unlink(set, index);
    if (!r->alive)
        list_remove(set, &set->ended, index);
    request_let_go(e, r);
}

void request_learn_address(engine *e, ring_request *r, uint64_t address)
{
    ring_request *other = request_by_address(e, address, r->ctx, true);
    if (other)
        forget_address(e, other);
    r->address = address;
    address_link(e->ring_requests, index_of(e, r));
}

/* A place for a request: that of the last request at its address, if nothing refers to it any more. */
static uint32_t take_place(engine *e, uint64_t address)
{
    ring_request_set *set = e->ring_requests;
    ring_request *old = request_by_address(e, address, 0, false);
    if (old && !old->alive && !old->held) {
        list_remove(set, &set->ended, index_of(e, old));
        return index_of(e, old);
    }
    if (old)
        forget_address(e, old);
    if (!more_buckets(set))
        return NONE;
    set->nr_used++;
    if (set->free_requests.count)
        return set->free_requests.at[--set->free_requests.count];
    if (!VEC_ROOM(&set->requests, set->requests.count + 1))
        return NONE;
    set->requests.at[set->requests.count] = (ring_request){.id = 0};
    return set->requests.count++;
}

ring_request *request_new(engine *e, uint32_t ring_index, uint64_t ctx, uint64_t address, uint64_t user_data,
                          uint8_t data_class)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = VEC_ROOM(&set->of_ring, ring_index + 1) ? take_place(e, address) : NONE;
    if (index == NONE) {
        e->out_of_memory = true;
        return NULL;
    }
    ring_request *r = &set->requests.at[index];
    bool was_known = r->id && r->known;
    uint32_t next_address = r->next_address;
    *r = (ring_request){.id = e->next_id++, .ctx = ctx, .address = address, .user_data = user_data, .ring = ring_index,
                        .data_class = data_class, .alive = true, .known = was_known, .next_address = next_address,
                        .submit = UNKNOWN, .seen = UNKNOWN, .issue = UNKNOWN, .punt = UNKNOWN, .arm = UNKNOWN,
                        .wake = UNKNOWN, .work_begin = UNKNOWN, .work_end = UNKNOWN, .complete = UNKNOWN,
                        .notify = UNKNOWN, .end = UNKNOWN, .end_before = UNKNOWN, .looked = UNKNOWN, .offset = UNKNOWN, .length = UNKNOWN,
                        .bytes = UNKNOWN, .fd = -1, .fd2 = -1, .handle = NONE, .handle2 = NONE, .worker = NONE,
                        .worker_tid = NONE, .worker_index = NONE, .waker = NONE, .waker_tid = NONE, .task = NONE,
                        .task_index = NONE, .process = NONE, .pid = NONE, .tid = NONE, .op_flags = NONE, .file_index = NONE,
                        .buffer_index = -1};
    if (!was_known && address)
        address_link(set, index);
    data_link(set, index);
    list_add(set, &set->alive, index);
    of_ring_add(set, index);
    return r;
}

void request_retire(engine *e, ring_request *r)
{
    ring_request_set *set = e->ring_requests;
    uint32_t index = index_of(e, r);
    request_may_begin_unheard(e, r, false);
    data_unlink(set, index);
    list_remove(set, &set->alive, index);
    of_ring_remove(set, index);
    r->alive = false;
    if (!r->known) {
        request_let_go(e, r);
        return;
    }
    list_add(set, &set->ended, index);
    if (set->ended.count > MOST_ENDED)
        forget_address(e, &set->requests.at[set->ended.first]);
}
