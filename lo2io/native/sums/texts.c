/* Which texts are equal. */
#include <stdlib.h>
#include <string.h>

#include "api/all.h"
#include "hash/hash.h"

bool lo2_number_texts(size_t nr, const int32_t *ends, const uint8_t *texts, int32_t *number)
{
    size_t room = 64;
    while (room < 2 * nr)
        room *= 2;
    uint32_t *buckets = calloc(room, sizeof *buckets); /* place + 1 of a text that was the first of its kind, 0: none */
    if (!buckets)
        return false;
    for (size_t i = 0; i < nr; i++) {
        const uint8_t *text = texts + ends[i];
        size_t length = (size_t)(ends[i + 1] - ends[i]), at = hash_text(NULL, 0, text, length).low & (room - 1);
        number[i] = -1;
        while (length && number[i] < 0) {
            uint32_t first = buckets[at] ? buckets[at] - 1 : (uint32_t)i;
            buckets[at] = first + 1;
            if ((size_t)(ends[first + 1] - ends[first]) == length && !memcmp(texts + ends[first], text, length))
                number[i] = (int32_t)first;
            at = (at + 1) & (room - 1);
        }
    }
    free(buckets);
    return true;
}
