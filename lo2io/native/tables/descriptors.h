/* File descriptors: tables of slots, and the handles in them. */
#ifndef LO2IO_DESCRIPTORS_H
#define LO2IO_DESCRIPTORS_H

#include "tables/state.h"

enum { ORIGIN_OPENED = 0, ORIGIN_DUPLICATED = 1, ORIGIN_INHERITED = 2, ORIGIN_BEFORE = 3, ORIGIN_UNSEEN = 4 }; /* origin of a handle */

uint32_t table_new(engine *e, int64_t since);
uint32_t table_copy(engine *e, uint32_t table, int64_t begin); /* by a call that began then; UNKNOWN: nobody knows when */
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
bool has_no_rivals(const engine *e, const task *t); /* its table has no other thread in user mode */
bool slot_is_disturbed(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
bool close_is_spent(engine *e, const task *t); /* its pending call is a close that has freed its slot: others have got the number */
bool slot_is_steady(const engine *e, const task *t, const slot *s, int32_t fd, int64_t begin);
bool slot_kept(const engine *e, const task *t, const slot *s, uint32_t handle_index, int64_t since); /* nothing else was in it */
bool is_told(const engine *e, const task *t, uint32_t handle_index); /* for requests: or need not be */
void ends_begin(engine *e, task *t);              /* its pending call has been resolved */
void ends_over(engine *e, task *t, int64_t time); /* ... and is left: no fact of it is to come any more */
/* A dup2 or dup3 nobody saw the end of: what stood there may have been replaced, and is known no more. */
void perhaps_replaced(engine *e, const task *t);

#endif
