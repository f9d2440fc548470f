/* Growable arrays. */
#include "input/vectors.h"

bool lo2_grow(void **at, uint32_t *room, uint32_t need, size_t element)
{
    uint64_t wanted = *room ? (uint64_t)*room * 2 : 64;
    if (wanted < need)
        wanted = need;
    if (wanted > UINT32_MAX)
        return false;
    void *grown = realloc(*at, wanted * element);
    if (!grown)
        return false;
    memset((char *)grown + *room * element, 0, (wanted - *room) * element);
    *at = grown;
    *room = (uint32_t)wanted;
    return true;
}
