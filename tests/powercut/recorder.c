/*
 * Records what a process changes below one folder, for the test of power cuts.
 *
 * LD_PRELOAD loads this library into every process of the product. Each function below replaces the function of the C
 * library with the same name: it calls the original, and if the file is below POWERCUT_ROOT, it appends a record to the
 * log, which all processes map into their memory. A mutex around both steps gives the records one order, which is the
 * order of the changes. A process that is killed inside leaves no partial record.
 *
 * A sync covers the records before it. The disk itself is not synced, because the test never reads it after a cut.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, MKDIR, FIFO, WRITE, TRUNCATE, RENAME, LINK, REMOVE, SYNC, UNSUPPORTED };

struct header {
    uint64_t ready; /* 1 once the mutex can be used */
    uint64_t end;   /* where the next record begins */
    uint64_t size;
    pthread_mutex_t mutex;
};

struct record {
    uint32_t kind;
    uint32_t path_length;
    uint32_t target_length;
    uint32_t data_length;
    uint64_t inode;
    uint64_t offset; /* of a write, or the new size */
};

static struct header *shared;
static const char *root;
static size_t root_length;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

#define ORIGINAL(name) \
    static __typeof__(name) *original; \
    if (!original) original = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void read_environment(void) {
    root = getenv("POWERCUT_ROOT");
    root_length = root ? strlen(root) : 0;
}

static void fail(const char *what) {
    dprintf(2, "powercut: %s: %s\n", what, strerror(errno));
    abort();
}

/* Map the log. The test has written its header, except the mutex; the first process initialises that. */
static void open_log(void) {
    pthread_mutex_lock(&opening);
    if (!shared) {
        const char *path = getenv("POWERCUT_LOG");
        int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
        int fd = path ? real_open(path, O_RDWR | O_CLOEXEC) : -1;
        struct stat about;
        if (fd < 0 || fstat(fd, &about)) fail("the log cannot be opened");
        struct header *map = mmap(NULL, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) fail("the log cannot be mapped");
        struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        if (fcntl(fd, F_SETLKW, &range)) fail("the log cannot be locked");
        if (!map->ready) {
            pthread_mutexattr_t how;
            pthread_mutexattr_init(&how);
            pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
            pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
            pthread_mutex_init(&map->mutex, &how);
            map->ready = 1;
        }
        close(fd); /* releases the lock */
        shared = map;
    }
    pthread_mutex_unlock(&opening);
}

static void lock(void) {
    if (!shared) open_log();
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared->mutex);
}

static void unlock(void) {
    int kept = errno;
    pthread_mutex_unlock(&shared->mutex);
    errno = kept;
}

static void append(enum kind kind, uint64_t inode, uint64_t offset, const char *path, const char *target,
                   const struct iovec *data, int parts, size_t data_length) {
    struct record head = {.kind = kind,
                          .path_length = path ? strlen(path) : 0,
                          .target_length = target ? strlen(target) : 0,
                          .data_length = data_length,
                          .inode = inode,
                          .offset = offset};
    size_t length = sizeof head + head.path_length + head.target_length + data_length;
    if (shared->end + length > shared->size) {
        errno = ENOSPC;
        fail("the log is full");
    }
    char *at = (char *)shared + shared->end;
    memcpy(at, &head, sizeof head), at += sizeof head;
    if (path) memcpy(at, path, head.path_length), at += head.path_length;
    if (target) memcpy(at, target, head.target_length), at += head.target_length;
    for (int part = 0; part < parts && data_length; part++) {
        size_t some = data[part].iov_len < data_length ? data[part].iov_len : data_length;
        memcpy(at, data[part].iov_base, some), at += some, data_length -= some;
    }
    shared->end += length;
}

static int below_root(const char *path) {
    return root && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* Return whether a descriptor is a file or folder below the root. */
static int is_watched(int fd, struct stat *about) {
    char link[64], path[PATH_MAX + 16];
    int kept = errno, watched = 0;
    if (root && !fstat(fd, about) && (S_ISREG(about->st_mode) || S_ISDIR(about->st_mode))) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length > 0) path[length] = 0, watched = below_root(path);
    }
    errno = kept;
    return watched;
}

/* Write the absolute path without links in its folders. Return whether it is below the root. */
static int resolve(int folder, const char *path, char *absolute) {
    char joined[2 * PATH_MAX], link[64], real[PATH_MAX];
    int kept = errno;
    if (!root || !path) return 0;
    if (path[0] == '/') {
        snprintf(joined, sizeof joined, "%s", path);
    } else {
        char base[PATH_MAX] = "";
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return errno = kept, 0;
        snprintf(joined, sizeof joined, "%s/%s", base, path);
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    char *name = strrchr(joined, '/');
    *name++ = 0;
    if (!realpath(*joined ? joined : "/", real)) return errno = kept, 0;
    errno = kept;
    return snprintf(absolute, PATH_MAX, "%s/%s", real, name) < PATH_MAX && below_root(absolute);
}

static uint64_t inode_at(const char *path) {
    struct stat about;
    return lstat(path, &about) ? 0 : about.st_ino;
}

/* Files. */

static int record_open(int (*real)(int, const char *, int, mode_t), int folder, const char *path, int flags,
                       mode_t mode) {
    char absolute[PATH_MAX];
    struct stat about;
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(folder, path, absolute)) return real(folder, path, flags, mode);
    lock();
    uint64_t before = inode_at(absolute);
    int fd = real(folder, path, flags, mode);
    if (fd >= 0 && !fstat(fd, &about) && S_ISREG(about.st_mode)) {
        if ((flags & O_TMPFILE) == O_TMPFILE) append(UNSUPPORTED, 0, 0, "O_TMPFILE", NULL, NULL, 0, 0);
        else if (!before) append(CREATE, about.st_ino, 0, absolute, NULL, NULL, 0, 0);
        else if (flags & O_TRUNC) append(TRUNCATE, about.st_ino, 0, NULL, NULL, NULL, 0, 0);
    }
    unlock();
    return fd;
}

static int real_openat(int folder, const char *path, int flags, mode_t mode) {
    ORIGINAL(openat64);
    return original(folder, path, flags, mode);
}

#define MODE(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) { MODE(flags, mode) return record_open(real_openat, AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return record_open(real_openat, AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags, mode) return record_open(real_openat, folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags, mode) return record_open(real_openat, folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return record_open(real_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static void record_write(const struct stat *about, off_t offset, const struct iovec *data, int parts, ssize_t written) {
    if (written > 0) append(WRITE, about->st_ino, offset, NULL, NULL, data, parts, written);
}

ssize_t pwritev(int fd, const struct iovec *data, int parts, off_t offset) {
    ORIGINAL(pwritev);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, data, parts, offset);
    lock();
    ssize_t written = original(fd, data, parts, offset);
    record_write(&about, offset, data, parts, written);
    unlock();
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    ORIGINAL(pwrite64);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, data, length, offset);
    lock();
    ssize_t written = original(fd, data, length, offset);
    record_write(&about, offset, &(struct iovec){(void *)data, length}, 1, written);
    unlock();
    return written;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return pwrite(fd, data, length, offset); }
ssize_t pwritev64(int fd, const struct iovec *data, int parts, off_t offset) { return pwritev(fd, data, parts, offset); }

ssize_t writev(int fd, const struct iovec *data, int parts) {
    ORIGINAL(writev);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, data, parts);
    lock();
    ssize_t written = original(fd, data, parts);
    if (written > 0) record_write(&about, lseek(fd, 0, SEEK_CUR) - written, data, parts, written);
    unlock();
    return written;
}

ssize_t write(int fd, const void *data, size_t length) {
    ORIGINAL(write);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, data, length);
    lock();
    ssize_t written = original(fd, data, length);
    if (written > 0)
        record_write(&about, lseek(fd, 0, SEEK_CUR) - written, &(struct iovec){(void *)data, length}, 1, written);
    unlock();
    return written;
}

int ftruncate(int fd, off_t size) {
    ORIGINAL(ftruncate64);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, size);
    lock();
    int result = original(fd, size);
    if (!result) append(TRUNCATE, about.st_ino, size, NULL, NULL, NULL, 0, 0);
    unlock();
    return result;
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int posix_fallocate(int fd, off_t offset, off_t length) {
    ORIGINAL(posix_fallocate64);
    struct stat about;
    if (!is_watched(fd, &about)) return original(fd, offset, length);
    lock();
    int result = original(fd, offset, length);
    if (!result && offset + length > about.st_size)
        append(TRUNCATE, about.st_ino, offset + length, NULL, NULL, NULL, 0, 0);
    unlock();
    return result;
}

int posix_fallocate64(int fd, off_t offset, off_t length) { return posix_fallocate(fd, offset, length); }

/* Calls that the product does not use for its data. A recording with one of them is not valid. */

static void refuse_call(const char *name) {
    if (!root) return;
    lock();
    append(UNSUPPORTED, 0, 0, name, NULL, NULL, 0, 0);
    unlock();
}

static void refuse(int fd, const char *name) {
    struct stat about;
    if (is_watched(fd, &about)) refuse_call(name);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    ssize_t (*original)(int, int, off_t *, size_t) = dlsym(RTLD_NEXT, "sendfile64");
    refuse(out, "sendfile");
    return original(out, in, offset, count);
}

ssize_t sendfile64(int out, int in, off_t *offset, size_t count) { return sendfile(out, in, offset, count); }

ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t length, unsigned flags) {
    ORIGINAL(copy_file_range);
    refuse(out, "copy_file_range");
    return original(in, from, out, to, length, flags);
}

void sync(void) { refuse_call("sync"); }

int syncfs(int fd) {
    (void)fd;
    refuse_call("syncfs");
    return 0;
}

/* Folders. */

static int record_made(enum kind kind, int result, const char *absolute) {
    if (!result) append(kind, inode_at(absolute), 0, absolute, NULL, NULL, 0, 0);
    return result;
}

int mkdirat(int folder, const char *path, mode_t mode) {
    ORIGINAL(mkdirat);
    char absolute[PATH_MAX];
    if (!resolve(folder, path, absolute)) return original(folder, path, mode);
    lock();
    int result = record_made(MKDIR, original(folder, path, mode), absolute);
    unlock();
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int mkfifoat(int folder, const char *path, mode_t mode) {
    ORIGINAL(mkfifoat);
    char absolute[PATH_MAX];
    if (!resolve(folder, path, absolute)) return original(folder, path, mode);
    lock();
    int result = record_made(FIFO, original(folder, path, mode), absolute);
    unlock();
    return result;
}

int mkfifo(const char *path, mode_t mode) { return mkfifoat(AT_FDCWD, path, mode); }

int unlinkat(int folder, const char *path, int flags) {
    ORIGINAL(unlinkat);
    char absolute[PATH_MAX];
    if (!resolve(folder, path, absolute)) return original(folder, path, flags);
    lock();
    uint64_t inode = inode_at(absolute);
    int result = original(folder, path, flags);
    if (!result) append(REMOVE, inode, 0, absolute, NULL, NULL, 0, 0);
    unlock();
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    struct stat about;
    return !lstat(path, &about) && S_ISDIR(about.st_mode) ? rmdir(path) : unlink(path);
}

int renameat2(int from, const char *path, int to, const char *target, unsigned flags) {
    ORIGINAL(renameat2);
    char absolute[PATH_MAX], final[PATH_MAX];
    int leaves = resolve(from, path, absolute), enters = resolve(to, target, final);
    if (!leaves && !enters) return original(from, path, to, target, flags);
    lock();
    uint64_t inode = inode_at(absolute);
    int result = original(from, path, to, target, flags);
    if (!result) append(leaves && enters && !flags ? RENAME : UNSUPPORTED, inode, 0, absolute, final, NULL, 0, 0);
    unlock();
    return result;
}

int renameat(int from, const char *path, int to, const char *target) { return renameat2(from, path, to, target, 0); }
int rename(const char *path, const char *target) { return renameat2(AT_FDCWD, path, AT_FDCWD, target, 0); }

int linkat(int from, const char *path, int to, const char *target, int flags) {
    ORIGINAL(linkat);
    char absolute[PATH_MAX], final[PATH_MAX];
    int leaves = resolve(from, path, absolute), enters = resolve(to, target, final);
    if (!leaves && !enters) return original(from, path, to, target, flags);
    lock();
    int result = original(from, path, to, target, flags);
    if (!result) append(leaves && enters ? LINK : UNSUPPORTED, inode_at(final), 0, absolute, final, NULL, 0, 0);
    unlock();
    return result;
}

int link(const char *path, const char *target) { return linkat(AT_FDCWD, path, AT_FDCWD, target, 0); }

/* Syncs. */

static int record_sync(int fd) {
    struct stat about;
    if (!is_watched(fd, &about)) return 0;
    lock();
    append(SYNC, about.st_ino, 0, NULL, NULL, NULL, 0, 0);
    unlock();
    return 1;
}

int fsync(int fd) {
    ORIGINAL(fsync);
    return record_sync(fd) ? 0 : original(fd);
}

int fdatasync(int fd) {
    ORIGINAL(fdatasync);
    return record_sync(fd) ? 0 : original(fd);
}
