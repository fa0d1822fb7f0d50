/* What a power cut leaves behind; see power_vfs.h.
 *
 * Locks: power_here.lock around everything a VFS call does here, so that a cut is one moment for
 * all files.
 */
#ifdef STET_WITH_SQLITE
#include "power_vfs.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "test.h"
#include "vfs_shim.h"

enum { POWER_DB, POWER_JOURNAL, POWER_LOG, POWER_FILES, POWER_SECTOR = 512 };

static const char *const power_names[POWER_FILES] = { "database", "journal", "log" };
static const char *const power_ends[POWER_FILES] = { "", "-journal", "-wal" };

typedef enum power_kind { POWER_WRITE, POWER_TRUNCATE, POWER_REMOVE } power_kind;

typedef struct power_op {
    power_kind kind;
    size_t     at, len; /* of a truncation: at is the new size */
    uint8_t   *data;
} power_op;

typedef struct power_image {
    bool      exists;
    uint8_t  *data; /* as flushed */
    size_t    len, cap;
    power_op *ops; /* since then */
    size_t    n_ops, cap_ops;
} power_image;

struct power_cut {
    power_image files[POWER_FILES];
    int         file;
    void       *known;
};

static struct {
    pthread_mutex_t lock;
    sqlite3_vfs     table;
    bool            is_recording;
    power_image     files[POWER_FILES];
    power_cut      *cuts;
    size_t          n, cap;
    void *(*look)(void *arg);
    void *arg;
} power_here = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *
power_grow(void *old, size_t size)
{
    void *fresh = realloc(old, size);

    CHECK(fresh != NULL);
    return fresh;
}

/* ---- images ------------------------------------------------------------------------------------
 */

static void
power_resize(power_image *f, size_t len)
{
    if (len > f->cap) {
        f->cap = len * 2;
        f->data = power_grow(f->data, f->cap);
    }
    if (len > f->len)
        memset(f->data + f->len, 0, len - f->len);
    f->len = len;
}

static void
power_add(power_image *f, power_kind kind, size_t at, const void *data, size_t len)
{
    power_op *op;

    if (f->n_ops == f->cap_ops) {
        f->cap_ops = f->cap_ops > 0 ? f->cap_ops * 2 : 16;
        f->ops = power_grow(f->ops, f->cap_ops * sizeof *f->ops);
    }
    op = &f->ops[f->n_ops++];
    *op = (power_op){ .kind = kind, .at = at, .len = len };
    if (len > 0)
        memcpy(op->data = power_grow(NULL, len), data, len);
}

/* The bytes [from, to) of a write arrive; `with` may be garbage instead of what was written. */
static void
power_put(power_image *f, const power_op *op, size_t from, size_t to, const uint8_t *with)
{
    if (op->at + to > f->len)
        power_resize(f, op->at + to);
    memcpy(f->data + op->at + from, with + from, to - from);
}

static void
power_apply(power_image *f, const power_op *op)
{
    f->exists = op->kind != POWER_REMOVE;
    if (op->kind == POWER_WRITE)
        power_put(f, op, 0, op->len, op->data);
    else
        power_resize(f, op->kind == POWER_REMOVE ? 0 : op->at);
}

static void
power_forget_ops(power_image *f)
{
    for (size_t i = 0; i < f->n_ops; i++)
        free(f->ops[i].data);
    f->n_ops = 0;
}

static void
power_flush(power_image *f)
{
    for (size_t i = 0; i < f->n_ops; i++)
        power_apply(f, &f->ops[i]);
    f->exists = f->exists || f->n_ops == 0;
    power_forget_ops(f);
}

static void
power_copy(power_image *to, const power_image *from)
{
    *to = (power_image){ .exists = from->exists };
    power_resize(to, from->len);
    if (from->len > 0)
        memcpy(to->data, from->data, from->len);
    for (size_t i = 0; i < from->n_ops; i++)
        power_add(to, from->ops[i].kind, from->ops[i].at, from->ops[i].data, from->ops[i].len);
}

static void
power_free(power_image *f)
{
    power_forget_ops(f);
    free(f->ops);
    free(f->data);
    *f = (power_image){ .exists = false };
}

/* ---- the VFS -----------------------------------------------------------------------------------
 */

static power_image *
power_of(const vfs_file *f)
{
    if (!power_here.is_recording)
        return NULL;
    if (f->flags & SQLITE_OPEN_MAIN_DB)
        return &power_here.files[POWER_DB];
    if (f->flags & SQLITE_OPEN_MAIN_JOURNAL)
        return &power_here.files[POWER_JOURNAL];
    if (f->flags & SQLITE_OPEN_WAL)
        return &power_here.files[POWER_LOG];
    return NULL;
}

static int
power_write(vfs_file *f, const void *from, int n, sqlite3_int64 at)
{
    power_image *image;
    int          rc = f->real->pMethods->xWrite(f->real, from, n, at);

    (void)pthread_mutex_lock(&power_here.lock);
    if (rc == SQLITE_OK && n > 0 && (image = power_of(f)) != NULL)
        power_add(image, POWER_WRITE, (size_t)at, from, (size_t)n);
    (void)pthread_mutex_unlock(&power_here.lock);
    return rc;
}

static int
power_truncate(vfs_file *f, sqlite3_int64 size)
{
    power_image *image;
    int          rc = f->real->pMethods->xTruncate(f->real, size);

    (void)pthread_mutex_lock(&power_here.lock);
    if (rc == SQLITE_OK && (image = power_of(f)) != NULL)
        power_add(image, POWER_TRUNCATE, (size_t)size, NULL, 0);
    (void)pthread_mutex_unlock(&power_here.lock);
    return rc;
}

/* Locks: power_here.lock. */
static void
power_take_cut(const power_image *image)
{
    power_cut *cut;

    if (power_here.n == power_here.cap) {
        power_here.cap = power_here.cap > 0 ? power_here.cap * 2 : 64;
        power_here.cuts = power_grow(power_here.cuts, power_here.cap * sizeof *power_here.cuts);
    }
    cut = &power_here.cuts[power_here.n++];
    cut->file = (int)(image - power_here.files);
    /* First what is known, then the files: what was answered before is on the disk by now. */
    cut->known = power_here.look(power_here.arg);
    for (size_t i = 0; i < POWER_FILES; i++)
        power_copy(&cut->files[i], &power_here.files[i]);
}

/* Locks: power_here.lock. */
static void
power_flush_removals(void)
{
    for (size_t i = 0; i < POWER_FILES; i++) {
        power_image *f = &power_here.files[i];

        if (f->n_ops > 0 && f->ops[f->n_ops - 1].kind == POWER_REMOVE)
            power_flush(f);
    }
}

static int
power_sync(vfs_file *f, int flags)
{
    power_image *image;

    (void)flags;
    (void)pthread_mutex_lock(&power_here.lock);
    if ((image = power_of(f)) != NULL) {
        power_take_cut(image);
        /* As the Unix VFS: the first flush of a log or journal flushes the directory too. */
        if ((f->flags & SQLITE_OPEN_CREATE) && image != &power_here.files[POWER_DB])
            power_flush_removals();
        f->flags &= ~SQLITE_OPEN_CREATE;
        power_flush(image);
    }
    (void)pthread_mutex_unlock(&power_here.lock);
    return SQLITE_OK;
}

/* The unflushed removal of a file stands behind its writes: it may come back as a whole or in part.
 */
static int
power_remove(sqlite3_vfs *real, const char *name, int is_synced)
{
    int    rc = real->xDelete(real, name, 0);
    size_t len = strlen(name);

    (void)pthread_mutex_lock(&power_here.lock);
    for (size_t i = 1; power_here.is_recording && rc == SQLITE_OK && i < POWER_FILES; i++)
        if (len > strlen(power_ends[i]) &&
            strcmp(name + len - strlen(power_ends[i]), power_ends[i]) == 0) {
            power_take_cut(&power_here.files[i]);
            power_add(&power_here.files[i], POWER_REMOVE, 0, NULL, 0);
            if (is_synced)
                power_flush(&power_here.files[i]);
        }
    (void)pthread_mutex_unlock(&power_here.lock);
    return rc;
}

void
power_vfs_begin(void *(*look)(void *arg), void *arg)
{
    static const vfs_hooks hooks = {
        .remove = power_remove,
        .write = power_write,
        .truncate = power_truncate,
        .sync = power_sync,
    };

    vfs_shim_register(&power_here.table, "power", &hooks);
    (void)pthread_mutex_lock(&power_here.lock);
    for (size_t i = 0; i < POWER_FILES; i++)
        power_free(&power_here.files[i]);
    power_here.look = look;
    power_here.arg = arg;
    power_here.is_recording = true;
    (void)pthread_mutex_unlock(&power_here.lock);
}

size_t
power_vfs_end(void)
{
    (void)pthread_mutex_lock(&power_here.lock);
    if (power_here.is_recording)
        power_take_cut(&power_here.files[POWER_DB]); /* everybody has gone; then the power goes */
    power_here.is_recording = false;
    (void)pthread_mutex_unlock(&power_here.lock);
    return power_here.n;
}

const power_cut *
power_vfs_cut(size_t at)
{
    return &power_here.cuts[at];
}

void
power_vfs_free(void (*forget)(void *known))
{
    for (size_t i = 0; i < power_here.n; i++) {
        for (size_t k = 0; k < POWER_FILES; k++)
            power_free(&power_here.cuts[i].files[k]);
        forget(power_here.cuts[i].known);
    }
    for (size_t k = 0; k < POWER_FILES; k++)
        power_free(&power_here.files[k]);
    free(power_here.cuts);
    power_here.cuts = NULL;
    power_here.n = power_here.cap = 0;
}

/* ---- a cut as files
 * ------------------------------------------------------------------------------ */

static uint64_t
power_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void
power_tear(power_image *f, const power_op *op, uint64_t *random)
{
    uint8_t *garbage = power_grow(NULL, op->len);

    for (size_t i = 0; i < op->len; i++)
        garbage[i] = (uint8_t)power_random(random);
    for (size_t from = 0, to; from < op->len; from = to) {
        to = from + POWER_SECTOR - (op->at + from) % POWER_SECTOR;
        to = to < op->len ? to : op->len;
        switch (power_random(random) % 3) {
        case 0: power_put(f, op, from, to, op->data); break;
        case 1: power_put(f, op, from, to, garbage); break;
        default: break; /* stays as it was */
        }
    }
    f->exists = true;
    free(garbage);
}

static void
power_meet(power_image *f, const power_op *op, power_fate fate, uint64_t *random)
{
    bool is_lucky = power_random(random) % 2 == 0;

    if (fate == POWER_TEAR && op->kind == POWER_WRITE)
        power_tear(f, op, random);
    else if (fate == POWER_KEEP || (fate != POWER_DROP && is_lucky))
        power_apply(f, op);
}

static void
power_write_file(const power_image *f, const char *path, const char *end)
{
    char name[600];
    int  fd;

    (void)snprintf(name, sizeof name, "%s%s", path, end);
    (void)unlink(name);
    if (!f->exists)
        return;
    CHECK((fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600)) >= 0);
    CHECK_INT(f->len > 0 ? write(fd, f->data, f->len) : 0, f->len);
    (void)close(fd);
}

void
power_cut_write(const power_cut *cut, power_fate fate, uint64_t seed, const char *path)
{
    uint64_t random = seed * 2654435761u + 88172645463325252u;

    for (size_t i = 0; i < POWER_FILES; i++) {
        power_image f;

        power_copy(&f, &cut->files[i]);
        for (size_t k = 0; k < cut->files[i].n_ops; k++)
            power_meet(&f, &cut->files[i].ops[k], fate, &random);
        power_write_file(&f, path, power_ends[i]);
        power_free(&f);
    }
}

void *
power_cut_known(const power_cut *cut)
{
    return cut->known;
}

const char *
power_cut_file(const power_cut *cut)
{
    return power_names[cut->file];
}

size_t
power_cut_pending(const power_cut *cut)
{
    size_t n = 0;

    for (size_t i = 0; i < POWER_FILES; i++)
        n += cut->files[i].n_ops;
    return n;
}

const char *
power_fate_name(power_fate fate)
{
    static const char *const names[] = { "kept", "dropped", "shuffled", "torn" };

    return names[fate];
}
#else
typedef int power_vfs_needs_sqlite; /* a translation unit must not be empty */
#endif
