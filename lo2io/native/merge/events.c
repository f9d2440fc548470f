/*
 * Writes events as a reader hands them over: with ids mapped and times corrected. In libotf2 a reader's callback has the arguments of
 * the writer's function of the same name (OTF2_EvtReaderCallbacks.h, OTF2_EvtWriter.h of OTF2 3.2). C needs them spelt out, for
 * arguments of different widths are passed differently.
 */
#include "merge/merge.h"

enum { GO_ON = 0, INTERRUPT = 1 }; /* OTF2_CallbackCode */

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef const void *ptr;

#define EVENTS(E0, E1, E2, E3, E4, E5, E6)                                                                       \
    E1(BufferFlush, u64) E1(MeasurementOnOff, u8) E1(Enter, u32) E1(Leave, u32) E4(MpiSend, u32, u32, u32, u64)   \
    E5(MpiIsend, u32, u32, u32, u64, u64) E1(MpiIsendComplete, u64) E1(MpiIrecvRequest, u64)                      \
    E4(MpiRecv, u32, u32, u32, u64) E5(MpiIrecv, u32, u32, u32, u64, u64) E1(MpiRequestTest, u64)                 \
    E1(MpiRequestCancelled, u64) E0(MpiCollectiveBegin) E5(MpiCollectiveEnd, u8, u32, u32, u64, u64)              \
    E1(OmpFork, u32) E0(OmpJoin) E2(OmpAcquireLock, u32, u32) E2(OmpReleaseLock, u32, u32)                        \
    E1(OmpTaskCreate, u64) E1(OmpTaskSwitch, u64) E1(OmpTaskComplete, u64) E4(Metric, u32, u8, ptr, ptr)          \
    E2(ParameterString, u32, u32) E2(ParameterInt, u32, i64) E2(ParameterUnsignedInt, u32, u64)                   \
    E1(RmaWinCreate, u32) E1(RmaWinDestroy, u32) E0(RmaCollectiveBegin)                                           \
    E6(RmaCollectiveEnd, u8, u32, u32, u32, u64, u64) E3(RmaGroupSync, u32, u32, u32)                             \
    E4(RmaRequestLock, u32, u32, u64, u8) E4(RmaAcquireLock, u32, u32, u64, u8)                                   \
    E4(RmaTryLock, u32, u32, u64, u8) E3(RmaReleaseLock, u32, u32, u64) E3(RmaSync, u32, u32, u8)                 \
    E1(RmaWaitChange, u32) E4(RmaPut, u32, u32, u64, u64) E4(RmaGet, u32, u32, u64, u64)                          \
    E6(RmaAtomic, u32, u32, u8, u64, u64, u64) E2(RmaOpCompleteBlocking, u32, u64)                                \
    E2(RmaOpCompleteNonBlocking, u32, u64) E2(RmaOpTest, u32, u64) E2(RmaOpCompleteRemote, u32, u64)              \
    E2(ThreadFork, u8, u32) E1(ThreadJoin, u8) E1(ThreadTeamBegin, u32) E1(ThreadTeamEnd, u32)                    \
    E3(ThreadAcquireLock, u8, u32, u32) E3(ThreadReleaseLock, u8, u32, u32) E3(ThreadTaskCreate, u32, u32, u32)   \
    E3(ThreadTaskSwitch, u32, u32, u32) E3(ThreadTaskComplete, u32, u32, u32) E2(ThreadCreate, u32, u64)          \
    E2(ThreadBegin, u32, u64) E2(ThreadWait, u32, u64) E2(ThreadEnd, u32, u64) E2(CallingContextEnter, u32, u32)  \
    E1(CallingContextLeave, u32) E3(CallingContextSample, u32, u32, u32) E4(IoCreateHandle, u32, u8, u32, u32)    \
    E1(IoDestroyHandle, u32) E3(IoDuplicateHandle, u32, u32, u32) E4(IoSeek, u32, i64, u8, u64)                   \
    E2(IoChangeStatusFlags, u32, u32) E2(IoDeleteFile, u8, u32) E5(IoOperationBegin, u32, u8, u32, u64, u64)      \
    E2(IoOperationTest, u32, u64) E2(IoOperationIssued, u32, u64) E3(IoOperationComplete, u32, u64, u64)          \
    E2(IoOperationCancelled, u32, u64) E2(IoAcquireLock, u32, u8) E2(IoReleaseLock, u32, u8)                      \
    E2(IoTryLock, u32, u8) E3(ProgramBegin, u32, u32, ptr) E1(ProgramEnd, i64)                                    \
    E1(NonBlockingCollectiveRequest, u64) E6(NonBlockingCollectiveComplete, u8, u32, u32, u64, u64, u64)          \
    E1(CommCreate, u32) E1(CommDestroy, u32) E4(MpiProbe, u32, u32, u32, u64) E2(MpiMrecv, u64, u64)              \
    E2(MpiImrecvRequest, u64, u64) E2(MpiImrecv, u64, u64)

enum place {
#define PLACE(name, ...) AT_##name,
    EVENTS(PLACE, PLACE, PLACE, PLACE, PLACE, PLACE, PLACE)
    NR_EVENTS
};

static int done(lo2_rewriting *r, const char *event, int code)
{
    if (__builtin_expect(code == 0, 1))
        return GO_ON;
    r->failed = event;
    r->error_code = code;
    return INTERRUPT;
}

#define CALLBACK(name, types, values, ...)                                                                         \
    static int on_##name(u64 location, u64 time, u64 position, void *user, void *attributes, ##__VA_ARGS__)         \
    {                                                                                                              \
        lo2_rewriting *r = user;                                                                                   \
        return done(r, #name, ((int(*) types)r->functions[AT_##name]) values);                                     \
    }
#define TYPES void *, void *, u64
#define VALUES r->writer, attributes, time
#define ON0(name) CALLBACK(name, (TYPES), (VALUES))
#define ON1(name, A) CALLBACK(name, (TYPES, A), (VALUES, a), A a)
#define ON2(name, A, B) CALLBACK(name, (TYPES, A, B), (VALUES, a, b), A a, B b)
#define ON3(name, A, B, C) CALLBACK(name, (TYPES, A, B, C), (VALUES, a, b, c), A a, B b, C c)
#define ON4(name, A, B, C, D) CALLBACK(name, (TYPES, A, B, C, D), (VALUES, a, b, c, d), A a, B b, C c, D d)
#define ON5(name, A, B, C, D, E)                                                                                   \
    CALLBACK(name, (TYPES, A, B, C, D, E), (VALUES, a, b, c, d, e), A a, B b, C c, D d, E e)
#define ON6(name, A, B, C, D, E, F)                                                                                \
    CALLBACK(name, (TYPES, A, B, C, D, E, F), (VALUES, a, b, c, d, e, f), A a, B b, C c, D d, E e, F f)
EVENTS(ON0, ON1, ON2, ON3, ON4, ON5, ON6)

static int on_other(u64 location, u64 time, u64 position, void *user, void *attributes)
{
    ((lo2_rewriting *)user)->failed = "";
    return INTERRUPT;
}

const lo2_event_callback *lo2_rewriting_callbacks(void)
{
    static const lo2_event_callback callbacks[] = {
#define ENTRY(name, ...) {#name, (void *)on_##name},
        EVENTS(ENTRY, ENTRY, ENTRY, ENTRY, ENTRY, ENTRY, ENTRY)
        {"", (void *)on_other}};
    return callbacks;
}
