/* Stackful coroutines: stacks, their pool, and the sanitizers' view of both.
 *
 * Owns: the mapping of each stack (a PROT_NONE guard page lowest, the stack above it) and the two
 * saved stack pointers of a coroutine. The switch itself is one of three: assembly for x86-64 and
 * arm64, ucontext elsewhere or with -DSTET_CO_UCONTEXT.
 *
 * Invariants:
 *  1. A suspended coroutine's `here` is where it goes on, a running one's `there` is where its
 *     resumer goes on; exactly one of the two is meaningful.
 *  2. A coroutine may yield while another one's stack is on the processor: a simulator fiber yields
 *     from inside a handler that it resumed. So what a yield leaves is not always its own stack,
 *     and the sanitizers are told the stack that was really left (`here`), never a guessed one.
 *  3. Of coroutines that pass control on to each other only the one that runs has a resumer: it goes with the control.
 *  4. A stack in a pool is unpoisoned and has no fake stack, also if its coroutine was abandoned.
 *
 * Runs on: the thread that resumes. Locks: none.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "exec/co.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CO_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CO_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CO_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define CO_TSAN 1
#endif

#if !defined(STET_CO_UCONTEXT) &&                                                                  \
    !(defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)))
#define STET_CO_UCONTEXT 1
#endif

#ifdef STET_CO_UCONTEXT
#include <ucontext.h>
#endif
#ifdef CO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* One end of a switch: where execution goes on, and what the sanitizers must hear about it. */
typedef struct co_place {
#ifdef STET_CO_UCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
#ifdef CO_ASAN
    const void *bottom; /* of the stack that is current there */
    size_t      bytes;
    void       *fake; /* its locals' fake stack (detect_stack_use_after_return) */
#endif
#ifdef CO_TSAN
    void *fiber;
#endif
} co_place;

typedef enum co_state { CO_NEW, CO_SUSPENDED, CO_RUNNING, CO_DONE } co_state;

struct stet__co {
    co_place        here;  /* inside, while suspended */
    co_place        there; /* the resumer, while running */
    stet__co_fn     fn;
    void           *arg;
    co_state        state;
    unsigned char  *map; /* the guard page, then the stack */
    size_t          map_bytes, guard_bytes;
    stet__co       *next; /* in the pool's free list */
    stet__co_owner *owner;
    stet__co       *owner_prev, *owner_next;
#ifdef CO_TSAN
    void *fiber; /* its own one */
#endif
};

static _Thread_local stet__co_owner *co_owner;

static unsigned char *
co_stack(const stet__co *co)
{
    return co->map + co->guard_bytes;
}

static size_t
co_stack_bytes(const stet__co *co)
{
    return co->map_bytes - co->guard_bytes;
}

/* ---- the sanitizers ------------------------------------------------------------------------ */

#ifdef CO_ASAN
#define CO_NO_ASAN __attribute__((no_sanitize("address")))

/* An abandoned coroutine never comes back to drop its fake stack. The runtime only drops the
 * current one, so make it current for a moment; not instrumented, so no local lives in it. */
CO_NO_ASAN static void
co_fake_drop(void *fake, const void *any_stack, size_t any_bytes)
{
    void       *mine = NULL;
    const void *bottom = NULL;
    size_t      bytes = 0;

    if (fake == NULL)
        return;
    __sanitizer_start_switch_fiber(&mine, any_stack, any_bytes);
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    __sanitizer_start_switch_fiber(NULL, bottom, bytes);
    __sanitizer_finish_switch_fiber(mine, NULL, NULL);
}
#endif

/* Before a switch from `from` to `to`; `last`: nobody will come back to `from`. */
static inline void
co_leave(co_place *from, const co_place *to, bool last)
{
#ifdef CO_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake, to->bottom, to->bytes);
#endif
#ifdef CO_TSAN
    from->fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->fiber, 0);
#endif
    (void)from;
    (void)to;
    (void)last;
}

/* First thing after a switch: we are at `at`, the stack we came from was `came_from`'s. */
static inline void
co_arrive(co_place *at, co_place *came_from)
{
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(at->fake, &came_from->bottom, &came_from->bytes);
    at->fake = NULL;
#endif
    (void)at;
    (void)came_from;
}

static bool
co_sanitizers_begin(stet__co *co)
{
#ifdef CO_ASAN
    co->here.bottom = co_stack(co);
    co->here.bytes = co_stack_bytes(co);
    co->here.fake = NULL;
    co->there.fake = NULL;
#endif
#ifdef CO_TSAN
    if ((co->fiber = __tsan_create_fiber(0)) == NULL)
        return false;
    co->here.fiber = co->fiber;
#endif
    (void)co;
    return true;
}

static void
co_sanitizers_end(stet__co *co)
{
#ifdef CO_ASAN
    /* Whichever end of it is parked holds the one saved fake stack; arriving clears it. */
    co_fake_drop(co->here.fake, co_stack(co), co_stack_bytes(co));
    co_fake_drop(co->there.fake, co_stack(co), co_stack_bytes(co));
    co->here.fake = co->there.fake = NULL;
    __asan_unpoison_memory_region(co_stack(co), co_stack_bytes(co));
#endif
#ifdef CO_TSAN
    if (co->fiber != NULL)
        __tsan_destroy_fiber(co->fiber);
    co->fiber = NULL;
#endif
    (void)co;
}

/* ---- the switch ---------------------------------------------------------------------------- */

static void co_main(stet__co *co);

#ifdef STET_CO_UCONTEXT

static void
co_swap(co_place *save, co_place *to)
{
    swapcontext(&save->context, &to->context);
}

/* makecontext() passes ints only, so the pointer travels in two halves. */
static void
co_ucontext_entry(unsigned high, unsigned low)
{
    co_main((stet__co *)(uintptr_t)((uint64_t)high << 32 | low));
}

static void
co_prepare(stet__co *co)
{
    uint64_t    self = (uint64_t)(uintptr_t)co;
    ucontext_t *context = &co->here.context;

    if (getcontext(context) != 0)
        abort(); /* it has no failure on Linux */
    context->uc_stack.ss_sp = co_stack(co);
    context->uc_stack.ss_size = co_stack_bytes(co);
    context->uc_link = NULL;
    makecontext(context, (void (*)(void))co_ucontext_entry, 2, (unsigned)(self >> 32),
                (unsigned)self);
}

#else

/* Pushes what the ABI says a call preserves, stores the stack pointer in *save, takes `to`, pops.
 * The frame has the same shape on both stacks, so its unwind description holds throughout. */
__attribute__((visibility("hidden"))) void stet__co_swap(void **save, void *to);
/* Calls the function in one preserved register with another one as its argument. The return
 * address is marked as undefined: backtraces end here. */
__attribute__((visibility("hidden"))) void stet__co_entry(void);

#if defined(__x86_64__)

/* mxcsr and the x87 control word are preserved by calls as well (rounding, exception masks). Loading them takes
 * longer than all the rest and they hardly ever differ, so they are compared first. The
 * jump instead of a return: the processor predicts returns by the calls it saw, and would always be
 * wrong here. */
__asm__(".pushsection .text\n"
        ".globl stet__co_swap\n"
        ".hidden stet__co_swap\n"
        ".type stet__co_swap, @function\n"
        ".balign 16\n"
        "stet__co_swap:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %rbp, 0\n"
        "    pushq %rbx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %rbx, 0\n"
        "    pushq %r12\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r12, 0\n"
        "    pushq %r13\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r13, 0\n"
        "    pushq %r14\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r14, 0\n"
        "    pushq %r15\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r15, 0\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movl (%rsp), %eax\n"
        "    movzwl 4(%rsp), %edx\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    cmpl %eax, (%rsp)\n"
        "    jne 1f\n"
        "    cmpw %dx, 4(%rsp)\n"
        "    je 2f\n"
        "1:\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "2:\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r15\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %r15\n"
        "    popq %r14\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %r14\n"
        "    popq %r13\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %r13\n"
        "    popq %r12\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %r12\n"
        "    popq %rbx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %rbx\n"
        "    popq %rbp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore %rbp\n"
        "    popq %rcx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_register %rip, %rcx\n"
        "    jmp *%rcx\n"
        "    .cfi_endproc\n"
        ".size stet__co_swap, . - stet__co_swap\n"
        ".globl stet__co_entry\n"
        ".hidden stet__co_entry\n"
        ".type stet__co_entry, @function\n"
        ".balign 16\n"
        "stet__co_entry:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined %rip\n"
        "    .cfi_undefined %rbp\n"
        "    xorl %ebp, %ebp\n"
        "    movq %r12, %rdi\n"
        "    call *%r13\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size stet__co_entry, . - stet__co_entry\n"
        ".popsection\n");

enum { CO_FRAME_WORDS = 8, CO_FRAME_ARG = 4, CO_FRAME_FN = 3, CO_FRAME_RETURN = 7 };

static void
co_frame_control(void **frame)
{
    uint32_t mxcsr;
    uint16_t x87;

    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    memcpy((unsigned char *)frame, &mxcsr, sizeof mxcsr);
    memcpy((unsigned char *)frame + 4, &x87, sizeof x87);
}

#else /* __aarch64__ */

/* x19-x30 and the low halves of v8-v15; fpcr for rounding. */
__asm__(".pushsection .text\n"
        ".globl stet__co_swap\n"
        ".hidden stet__co_swap\n"
        ".type stet__co_swap, %function\n"
        ".balign 16\n"
        "stet__co_swap:\n"
        "    .cfi_startproc\n"
        "    sub sp, sp, #176\n"
        "    .cfi_adjust_cfa_offset 176\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    .cfi_rel_offset x19, 0\n"
        "    .cfi_rel_offset x20, 8\n"
        "    .cfi_rel_offset x21, 16\n"
        "    .cfi_rel_offset x22, 24\n"
        "    .cfi_rel_offset x23, 32\n"
        "    .cfi_rel_offset x24, 40\n"
        "    .cfi_rel_offset x25, 48\n"
        "    .cfi_rel_offset x26, 56\n"
        "    .cfi_rel_offset x27, 64\n"
        "    .cfi_rel_offset x28, 72\n"
        "    .cfi_rel_offset x29, 80\n"
        "    .cfi_rel_offset x30, 88\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mrs x9, fpcr\n"
        "    str x9, [sp, #160]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldr x9, [sp, #160]\n"
        "    msr fpcr, x9\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    add sp, sp, #176\n"
        "    .cfi_def_cfa_offset 0\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size stet__co_swap, . - stet__co_swap\n"
        ".globl stet__co_entry\n"
        ".hidden stet__co_entry\n"
        ".type stet__co_entry, %function\n"
        ".balign 16\n"
        "stet__co_entry:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined x30\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x0, x19\n"
        "    blr x20\n"
        "    brk #1\n"
        "    .cfi_endproc\n"
        ".size stet__co_entry, . - stet__co_entry\n"
        ".popsection\n");

enum { CO_FRAME_WORDS = 22, CO_FRAME_ARG = 0, CO_FRAME_FN = 1, CO_FRAME_RETURN = 11 };

static void
co_frame_control(void **frame)
{
    uint64_t fpcr;

    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    memcpy(frame + 20, &fpcr, sizeof fpcr);
}

#endif

static inline void
co_swap(co_place *save, co_place *to)
{
    stet__co_swap(&save->sp, to->sp);
}

/* Lay down the frame that a swap would have left, so that the first resume is like any other. Two
 * zero words above it end a chain of frames for those who walk without unwind tables. */
static void
co_prepare(stet__co *co)
{
    void **top = (void **)(void *)(co_stack(co) + co_stack_bytes(co));
    void **frame = top - 2 - CO_FRAME_WORDS;
    int i;

    for (i = 0; i < CO_FRAME_WORDS + 2; i++)
        frame[i] = NULL;
    co_frame_control(frame);
    frame[CO_FRAME_ARG] = co;
    frame[CO_FRAME_FN] = (void *)(uintptr_t)co_main;
    frame[CO_FRAME_RETURN] = (void *)(uintptr_t)stet__co_entry;
    co->here.sp = frame;
}

#endif

/* What runs first on a new stack. Its caller is the end of the frame chain; it never returns. */
static void
co_main(stet__co *co)
{
    co_arrive(&co->here, &co->there);
    co->fn(co, co->arg);
    co->state = CO_DONE;
    co_leave(&co->here, &co->there, true);
    co_swap(&co->here, &co->there);
    abort();
}

/* ---- stacks and their pool ------------------------------------------------------------------ */

static void
co_owner_link(stet__co *co)
{
    co->owner = co_owner;
    if (co->owner == NULL)
        return;
    co->owner_next = co->owner->stacks;
    if (co->owner_next != NULL)
        co->owner_next->owner_prev = co;
    co->owner->stacks = co;
}

static void
co_owner_unlink(stet__co *co)
{
    if (co->owner == NULL)
        return;
    if (co->owner_next != NULL)
        co->owner_next->owner_prev = co->owner_prev;
    if (co->owner_prev != NULL)
        co->owner_prev->owner_next = co->owner_next;
    else
        co->owner->stacks = co->owner_next;
    co->owner = NULL;
}

static bool
co_map(stet__co *co, size_t stack_bytes)
{
    int            flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    stet__co_maps *maps = co_owner != NULL ? co_owner->maps : NULL;
    void          *map;

    co->guard_bytes = (size_t)sysconf(_SC_PAGESIZE);
    co->map_bytes = stack_bytes + co->guard_bytes;
    if (maps != NULL && maps->n > 0 && maps->bytes == co->map_bytes) {
        co->map = maps->map[--maps->n];
        return true;
    }
    map = mmap(NULL, co->map_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (map == MAP_FAILED)
        return false;
    if (mprotect(map, co->guard_bytes, PROT_NONE) != 0) {
        munmap(map, co->map_bytes);
        return false;
    }
    co->map = map;
    return true;
}

/* Before it is unlinked from its owner. */
static void
co_unmap(stet__co *co)
{
    stet__co_maps *maps = co->owner != NULL ? co->owner->maps : NULL;

    if (maps != NULL && maps->n == 0)
        maps->bytes = co->map_bytes;
    if (maps != NULL && maps->bytes == co->map_bytes &&
        maps->n < sizeof maps->map / sizeof maps->map[0])
        maps->map[maps->n++] = co->map;
    else
        munmap(co->map, co->map_bytes);
}

static stet__co *
co_make(stet__co_pool *pool)
{
    stet__co *co = stet__get0(pool->alloc, sizeof *co);

    if (co == NULL)
        return NULL;
    if (!co_map(co, pool->stack_bytes)) {
        stet__free(pool->alloc, co);
        return NULL;
    }
    co_owner_link(co);
    return co;
}

static void
co_unmake(stet__co_pool *pool, stet__co *co)
{
    co_unmap(co);
    co_owner_unlink(co);
    stet__free(pool->alloc, co);
}

void
stet__co_pool_init(stet__co_pool *pool, stet__alloc *alloc, size_t stack_bytes, size_t keep_max)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (stack_bytes < page)
        stack_bytes = page;
    pool->alloc = alloc;
    pool->stack_bytes = (stack_bytes + page - 1) / page * page;
    pool->keep_max = keep_max;
    pool->kept = 0;
    pool->free_list = NULL;
}

void
stet__co_pool_free(stet__co_pool *pool)
{
    stet__co *co;

    while ((co = pool->free_list) != NULL) {
        pool->free_list = co->next;
        co_unmake(pool, co);
    }
    pool->kept = 0;
}

/* ---- coroutines ---------------------------------------------------------------------------- */

stet__co *
stet__co_new(stet__co_pool *pool, stet__co_fn fn, void *arg)
{
    stet__co *co = pool->free_list;

    if (co != NULL) {
        pool->free_list = co->next;
        pool->kept--;
    } else if ((co = co_make(pool)) == NULL) {
        return NULL;
    }
    if (!co_sanitizers_begin(co)) {
        co_unmake(pool, co);
        return NULL;
    }
    co->next = NULL;
    co->fn = fn;
    co->arg = arg;
    co->state = CO_NEW;
    co_prepare(co);
    return co;
}

/* Where control was passed on, another one than `co` may have come back. */
bool
stet__co_resume(stet__co *co)
{
    if (co->state != CO_NEW && co->state != CO_SUSPENDED)
        abort(); /* a finished one, or one that is its own resumer */
    co->state = CO_RUNNING;
    co_leave(&co->there, &co->here, false);
    co_swap(&co->there, &co->here);
    co_arrive(&co->there, &co->here);
    return co->state != CO_DONE;
}

void
stet__co_yield(stet__co *co)
{
    if (co->state != CO_RUNNING)
        abort();
    co->state = CO_SUSPENDED;
    co_leave(&co->here, &co->there, false);
    co_swap(&co->here, &co->there);
    co_arrive(&co->here, &co->there);
}

#if defined(STET_CO_UCONTEXT) || defined(CO_ASAN) || defined(CO_TSAN)

bool
stet__co_can_pass(void)
{
    return false;
}

void
stet__co_pass(stet__co *from, stet__co *to)
{
    (void)from;
    (void)to;
    abort();
}

#else

bool
stet__co_can_pass(void)
{
    return true;
}

void
stet__co_pass(stet__co *from, stet__co *to)
{
    if (from->state != CO_RUNNING || (to->state != CO_NEW && to->state != CO_SUSPENDED))
        abort();
    from->state = CO_SUSPENDED;
    to->state = CO_RUNNING;
    to->there = from->there;
    co_swap(&from->here, &to->here);
}

#endif

bool
stet__co_is_done(const stet__co *co)
{
    return co->state == CO_DONE;
}

void
stet__co_free(stet__co_pool *pool, stet__co *co)
{
    if (co == NULL)
        return;
    co_sanitizers_end(co);
    if (pool->kept >= pool->keep_max) {
        co_unmake(pool, co);
        return;
    }
    co->state = CO_DONE;
    co->next = pool->free_list;
    pool->free_list = co;
    pool->kept++;
}

size_t
stet__co_stack_used(const stet__co *co)
{
    size_t        page = co->guard_bytes, pages = co_stack_bytes(co) / page, at, n, i;
    unsigned char resident[64];

    /* From the far end: the first page that exists marks the deepest call there ever was. */
    for (at = 0; at < pages; at += n) {
        n = pages - at < sizeof resident ? pages - at : sizeof resident;
        if (mincore(co_stack(co) + at * page, n * page, resident) != 0)
            return 0;
        for (i = 0; i < n; i++)
            if ((resident[i] & 1) != 0)
                return (pages - at - i) * page;
    }
    return 0;
}

bool
stet__co_is_guard(const stet__co *co, const void *address)
{
    uintptr_t at = (uintptr_t)address, guard = (uintptr_t)co->map;

    return at >= guard && at - guard < co->guard_bytes;
}

/* ---- for the simulator --------------------------------------------------------------------- */

stet__co_owner *
stet__co_owner_set(stet__co_owner *owner)
{
    stet__co_owner *former = co_owner;

    co_owner = owner;
    return former;
}

void
stet__co_owner_reclaim(stet__co_owner *owner)
{
    stet__co *co;

    while ((co = owner->stacks) != NULL) {
        co_sanitizers_end(co);
        co_unmap(co);
        co_owner_unlink(co);
    }
}

void
stet__co_maps_free(stet__co_maps *maps)
{
    while (maps->n > 0)
        munmap(maps->map[--maps->n], maps->bytes);
}
