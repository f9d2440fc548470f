/* SipHash, and the key of this process. */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "hash/hash.h"

typedef struct { uint64_t a, b, c, d; } sip;

hash_wide hash_factors[HASH_MOST_WORDS + 1];
static uint64_t text_key[2];

static uint64_t rotated(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

static void sip_rounds(sip *s, int count)
{
    while (count-- > 0) {
        s->a += s->b;
        s->c += s->d;
        s->b = rotated(s->b, 13) ^ s->a;
        s->d = rotated(s->d, 16) ^ s->c;
        s->a = rotated(s->a, 32) + s->d;
        s->c += s->b;
        s->d = rotated(s->d, 21) ^ s->a;
        s->b = rotated(s->b, 17) ^ s->c;
        s->c = rotated(s->c, 32);
    }
}

static void sip_word(sip *s, uint64_t word)
{
    s->d ^= word;
    sip_rounds(s, 2);
    s->a ^= word;
}

static uint64_t sip_sum(sip *s)
{
    sip_rounds(s, 4);
    return s->a ^ s->b ^ s->c ^ s->d;
}

hash_digest hash_text(const uint64_t *words, size_t nr, const void *text, size_t length)
{
    sip s = {text_key[0] ^ 0x736f6d6570736575u, text_key[1] ^ 0x646f72616e646f83u, text_key[0] ^ 0x6c7967656e657261u,
             text_key[1] ^ 0x7465646279746573u};
    const char *at = text, *end = at + length / 8 * 8;
    uint64_t word;
    for (size_t i = 0; i < nr; i++)
        sip_word(&s, words[i]);
    for (; at < end; at += 8) {
        memcpy(&word, at, 8);
        sip_word(&s, word);
    }
    word = 0;
    if (length % 8)
        memcpy(&word, at, length % 8);
    sip_word(&s, word | (uint64_t)(8 * nr + length) << 56);
    s.c ^= 0xee;
    hash_digest digest = {.low = sip_sum(&s)};
    s.b ^= 0xdd;
    digest.high = sip_sum(&s);
    return digest;
}

/* The kernel gives every program 16 random bytes at its start (AT_RANDOM), also before the machine has any to spare. */
__attribute__((constructor)) static void draw_key(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(text_key, random, sizeof text_key);
    else if (getentropy(text_key, sizeof text_key)) /* an emulator may start programs without AT_RANDOM */
        abort();
    for (uint64_t i = 0; i <= HASH_MOST_WORDS; i++) {
        hash_digest digest = hash_text(&i, 1, "", 0);
        hash_factors[i] = (hash_wide)digest.high << 64 | digest.low;
    }
}
