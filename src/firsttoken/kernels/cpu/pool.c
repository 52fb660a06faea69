/* A small thread pool: workers spin briefly between ops, then sleep, because an API process shares the cores. */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_WORKERS = 255, OPEN = 1 << 16, ACTIVE = OPEN - 1 };

static const int64_t SPIN_NS = 60000; /* longer than the host code between two ops of a step */
static const int64_t LATE_NS = 250000;

static struct {
    ft_task task;
    void *context;
    int64_t count, chunk;
    _Atomic int64_t next;    /* first piece that nobody has taken */
    _Atomic uint64_t state;  /* epoch << 17 | open << 16 | workers inside */
    _Atomic int sleepers;    /* workers waiting on `wake` */
    _Atomic int waiting;     /* the caller waits on `done` */
    _Atomic int stop;
    int alone;               /* ops without workers still to come */
    int workers;
    pthread_t threads[MAX_WORKERS];
} pool;

static pthread_mutex_t caller = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static void *scratch[FT_SCRATCH];
static size_t scratch_bytes[FT_SCRATCH];
static int wanted_threads = 1;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void work(void) {
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool.next, pool.chunk, memory_order_relaxed);
        if (begin >= pool.count) return;
        int64_t end = begin + pool.chunk;
        pool.task(pool.context, begin, end < pool.count ? end : pool.count);
    }
}

/* True when there is something new for a worker that last saw `epoch`. */
static int is_news(uint64_t state, uint64_t epoch) { return (state & OPEN) && state >> 17 != epoch; }

static void wait_for_news(uint64_t epoch) {
    int64_t deadline = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (is_news(atomic_load(&pool.state), epoch) || atomic_load(&pool.stop)) return;
            relax();
        }
        sched_yield(); /* whoever waits for this core, perhaps the caller itself, goes first */
    } while (now_ns() < deadline);
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while (!is_news(atomic_load(&pool.state), epoch) && !atomic_load(&pool.stop)) pthread_cond_wait(&wake, &lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&lock);
}

static void *worker(void *unused) {
    (void)unused;
    uint64_t epoch = 0;
    while (!atomic_load(&pool.stop)) {
        uint64_t state = atomic_load(&pool.state);
        if (!is_news(state, epoch)) {
            wait_for_news(epoch);
            continue;
        }
        if (!atomic_compare_exchange_strong(&pool.state, &state, state + 1)) continue;
        epoch = state >> 17;
        work();
        uint64_t left = atomic_fetch_sub(&pool.state, 1) - 1;
        if (!(left & (OPEN | ACTIVE)) && atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&lock);
            pthread_cond_signal(&done);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

/* The caller's own share is finished: nobody else may join, and those inside get a moment before we sleep too. */
static void finish(void) {
    uint64_t state = atomic_fetch_and(&pool.state, ~(uint64_t)OPEN) & ~(uint64_t)OPEN;
    int64_t deadline = 0;
    for (int i = 1; state & ACTIVE; i++) {
        relax();
        state = atomic_load(&pool.state);
        if (i % 64) continue;
        sched_yield();
        if (!deadline) deadline = now_ns() + SPIN_NS;
        if (now_ns() < deadline) continue;
        pthread_mutex_lock(&lock);
        atomic_store(&pool.waiting, 1);
        while (atomic_load(&pool.state) & ACTIVE) pthread_cond_wait(&done, &lock);
        atomic_store(&pool.waiting, 0);
        pthread_mutex_unlock(&lock);
        return;
    }
}

/* When another program takes the core of a worker inside a piece, everyone waits for a time slice of it, some
 * milliseconds. So a late worker costs the pool a pause: about as much time lost to single-threaded ops as to waiting. */
static void judge(int64_t own_ns, int64_t waited_ns) {
    if (waited_ns < LATE_NS + own_ns / 4) return;
    const int64_t ops = waited_ns / 16000;
    pool.alone = ops < 256 ? (int)ops : 256;
}

/* Threads do not survive a fork: the child starts with none and makes its own. */
static void forget_threads(void) {
    static const pthread_mutex_t new_mutex = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t new_cond = PTHREAD_COND_INITIALIZER;
    caller = lock = new_mutex;
    wake = done = new_cond;
    pool.workers = 0;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.waiting, 0);
}

static void stop_workers(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&pool.stop, 1);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < pool.workers; i++) pthread_join(pool.threads[i], NULL);
    pool.workers = 0;
    atomic_store(&pool.stop, 0);
}

static void start_workers(int workers) {
    static int hooked = 0;
    if (!hooked) hooked = pthread_atfork(NULL, NULL, forget_threads) == 0;
    while (pool.workers < workers) {
        if (pthread_create(&pool.threads[pool.workers], NULL, worker, NULL)) break;
        pool.workers++;
    }
}

void ft_parallel(ft_task task, void *context, int64_t count, int64_t chunk) {
    if (wanted_threads == 1 || count <= chunk || (pool.alone && pool.alone--)) {
        task(context, 0, count);
        return;
    }
    if (pool.workers < wanted_threads - 1) start_workers(wanted_threads - 1);
    pool.task = task;
    pool.context = context;
    pool.count = count;
    pool.chunk = chunk;
    atomic_store(&pool.next, 0);
    uint64_t epoch = (atomic_load(&pool.state) >> 17) + 1;
    atomic_store(&pool.state, epoch << 17 | OPEN);
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&lock);
    }
    const int64_t begin = now_ns();
    work();
    const int64_t own = now_ns();
    finish();
    judge(own - begin, now_ns() - own);
}

int ft_thread_count(void) { return wanted_threads; }

FT_API void ft_set_threads(int threads) {
    ft_enter();
    wanted_threads = threads < 1 ? 1 : threads > MAX_WORKERS + 1 ? MAX_WORKERS + 1 : threads;
    if (pool.workers > wanted_threads - 1) stop_workers();
    ft_leave();
}

void ft_enter(void) { pthread_mutex_lock(&caller); }

void ft_leave(void) { pthread_mutex_unlock(&caller); }

void *ft_scratch(int slot, size_t bytes) {
    if (bytes > scratch_bytes[slot]) {
        free(scratch[slot]);
        size_t size = (bytes + bytes / 4 + 63) & ~(size_t)63;
        scratch[slot] = aligned_alloc(64, size);
        scratch_bytes[slot] = scratch[slot] ? size : 0;
    }
    return scratch[slot];
}
