/* File descriptors: tables of slots, and the handles in them. */
#ifndef LO2IO_DESCRIPTORS_H
#define LO2IO_DESCRIPTORS_H

#include "tables/state.h"

enum { /* the column `origin` of a handle, api/columns.h */
    ORIGIN_OPENED = 0, ORIGIN_DUPLICATED = 1, ORIGIN_INHERITED = 2, ORIGIN_BEFORE = 3, ORIGIN_UNSEEN = 4,
    ORIGIN_OPENED_BY_RING = 5, ORIGIN_REGISTERED = 6
};

uint32_t table_new(engine *e, int64_t since);
uint32_t table_copy(engine *e, uint32_t table, int64_t begin); /* `begin` of the call that copies; UNKNOWN: not known */
void table_release(engine *e, uint32_t table, int64_t time);
void table_void(engine *e, uint32_t table, int64_t time);
void table_unshare(engine *e, task *t, int64_t time);
void table_exec(engine *e, task *t, int64_t time);
void slot_sweep(engine *e, const task *t, slot *s, int64_t time);
slot *slot_at(engine *e, uint32_t table, int32_t fd, bool grow);
uint32_t handle_in_slot(engine *e, task *t, int32_t fd);
uint32_t handle_new(engine *e, task *t, int32_t fd, uint32_t description_index, uint8_t origin);
void handle_install(engine *e, task *t, int32_t fd, uint32_t handle_index, bool cloexec, int64_t time);
void handle_end(engine *e, uint32_t handle_index, bool cloexec, int64_t time);
void handle_release(engine *e, uint32_t handle_index);
void slot_set(slot *s, int64_t since, uint32_t handle_index, bool cloexec);
void slot_clear(engine *e, slot *s, int64_t end_time, int64_t now);
bool has_no_rivals(const engine *e, const task *t); /* no other thread of t's table runs in user mode */
bool slot_is_disturbed(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
/* t's pending call is a close that has freed its slot: another call has got the number since */
bool close_is_spent(engine *e, const task *t);
bool slot_is_steady(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
/* the slot has held nothing but this handle since then */
bool slot_kept(const engine *e, const task *t, const slot *s, uint32_t handle_index, int64_t since);
/* for a request: its descriptor is confirmed, or need not be */
bool is_told(const engine *e, const task *t, uint32_t handle_index);
void ends_begin(engine *e, task *t);              /* its pending call has got its handle */
void ends_over(engine *e, task *t, int64_t time); /* t's pending call was left, and all facts about the call have come */
/* The end of a dup2 or dup3 was not seen: the call may have replaced what its target held, which is unknown from now on. */
void perhaps_replaced(engine *e, const task *t);

#endif
