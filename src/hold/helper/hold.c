/*
 * hold ADDRESS TOKEN STATIC MAX
 *
 * The preStop hook of Hold: ends when Linger says that nobody sends to this pod any more, and tells it meanwhile who
 * still connects. It runs in other people's containers, whatever their image holds: no libc, no DNS, no allocation, the
 * ten system calls below, and of files only /proc/net.
 *
 * A hook that fails has its container killed at once, so this one always ends with 0, and
 *   - never before Linger has released it or STATIC seconds have passed since it began,
 *   - once Linger has said `holding`: at the later of STATIC and 30 s after losing touch,
 *   - at the latest after MAX seconds.
 *
 * Lines of ASCII go over a TCP connection. This end sends `linger-hold/1 TOKEN AGE`, with the milliseconds since it began,
 * then `w OPENS UDP ESTABLISHED REMOTES LOOPBACK`; Linger answers `holding`, `release` or `unsure`. Other lines are ignored.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

/* A test counts in shorter seconds, and reads tables of its own. */
#ifndef SECOND
#define SECOND 1000
#endif
#ifndef PROC_NET
#define PROC_NET "/proc/net/"
#endif

/* Milliseconds. */
#define CONNECT_WITHIN SECOND
#define FIRST_PAUSE (SECOND / 5)
#define LONGEST_PAUSE (2 * SECOND)
#define SILENCE (15 * SECOND)
#define AFTER_LOSS (30 * SECOND)
#define SAMPLE_EVERY (SECOND / 2)
#define TABLES_EVERY (2 * SECOND)
/* Of processor time for reading the tables. A release that comes meanwhile waits for as long. */
#define TABLES_WITHIN 200

/* Where STATIC cannot be read: the first wait of the built-in policy. */
#define STANDARD_WAIT 30
/* A number beyond this is a mistake. */
#define LONGEST_WAIT 86400

#define TOKEN_LENGTH 22
#define LINE 512
/* Linger says 8 bytes in 5 s; who says more than this is not Linger. */
#define MOST_HEARD 65536

#define MOST_SOCKETS 65536
#define MOST_TABLE_BYTES (8 << 20)
#define MOST_REMOTES 16
#define MOST_OWN 16

typedef uint8_t address[16]; /* An IPv4 address is mapped: ::ffff:1.2.3.4. */

/* ---- The kernel ---- */

#if defined(__x86_64__)
static long kernel(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call begin\n");
#elif defined(__aarch64__)
static long kernel(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start:\n  mov x29, #0\n  mov x30, #0\n  mov x0, sp\n  bl begin\n");
#else
#error "no system calls for this architecture"
#endif

static int64_t clock_now(long clock) {
  struct timespec at = {0, 0};
  kernel(SYS_clock_gettime, clock, (long)&at, 0, 0, 0, 0);
  return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static int64_t now(void) { return clock_now(CLOCK_MONOTONIC); }

/* What looking costs. Of a container that is throttled, or whose node is busy, the time that passes would say that it costs much. */
static int64_t worked(void) { return clock_now(CLOCK_PROCESS_CPUTIME_ID); }

static void leave(void) {
  for (;;) kernel(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

/* The compiler calls these of itself. */
__attribute__((used)) void *memset(void *to, int value, size_t length) {
  volatile uint8_t *bytes = to;
  while (length-- > 0) bytes[length] = (uint8_t)value;
  return to;
}
__attribute__((used)) void *memcpy(void *restrict to, const void *restrict from, size_t length) {
  volatile uint8_t *bytes = to;
  const uint8_t *others = from;
  for (size_t i = 0; i < length; i++) bytes[i] = others[i];
  return to;
}

/* ---- Text ---- */

static size_t length_of(const char *text) {
  size_t length = 0;
  while (text[length] != 0) length++;
  return length;
}

/* Whether the next characters are these. */
static int starts(const char *text, const char *end, const char *with) {
  size_t length = length_of(with);
  if ((size_t)(end - text) < length) return 0;
  for (size_t i = 0; i < length; i++)
    if (text[i] != with[i]) return 0;
  return 1;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Reads a number of at most `digits` digits. @returns what follows it, or NULL where there is none or a longer one */
static const char *number(const char *text, const char *end, int base, int digits, uint64_t *value) {
  const char *at = text;
  *value = 0;
  for (; at < end; at++) {
    int digit = hex_digit(*at);
    if (digit < 0 || digit >= base) break;
    if (at - text == digits) return NULL;
    *value = *value * (uint64_t)base + (uint64_t)digit;
  }
  return at == text ? NULL : at;
}

/* @returns the end of what has been written */
static char *write_text(char *to, const char *text) {
  while (*text != 0) *to++ = *text++;
  return to;
}

static char *write_number(char *to, uint64_t value, unsigned base) {
  char digits[20];
  int count = 0;
  do digits[count++] = "0123456789abcdef"[value % base];
  while ((value /= base) != 0);
  while (count > 0) *to++ = digits[--count];
  return to;
}

/* ---- Addresses ---- */

static const address MAPPED = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};
static const address LOOPBACK6 = {[15] = 1};

static int same(const uint8_t *a, const uint8_t *b, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (a[i] != b[i]) return 0;
  return 1;
}

static int is_mapped(const address a) { return same(a, MAPPED, 12); }

static int is_loopback(const address a) { return is_mapped(a) ? a[12] == 127 : same(a, LOOPBACK6, sizeof(address)); }

static char *write_address(char *to, const address a) {
  if (is_mapped(a)) {
    for (int i = 12; i < 16; i++) {
      if (i > 12) *to++ = '.';
      to = write_number(to, a[i], 10);
    }
    return to;
  }
  for (int i = 0; i < 16; i += 2) {
    if (i > 0) *to++ = ':';
    to = write_number(to, (uint64_t)(a[i] << 8 | a[i + 1]), 16);
  }
  return to;
}
/* Of the longest. */
#define ADDRESS_LENGTH 39

static const char *read_dotted(const char *text, const char *end, address to) {
  memcpy(to, MAPPED, sizeof(address));
  for (int i = 12; i < 16; i++) {
    uint64_t part;
    if (i > 12 && (text == end || *text++ != '.')) return NULL;
    text = number(text, end, 10, 3, &part);
    if (text == NULL || part > 255) return NULL;
    to[i] = (uint8_t)part;
  }
  return text;
}

/* Hex groups, one run of which may be left out with `::`. */
static const char *read_groups(const char *text, const char *end, address to) {
  uint8_t bytes[16];
  int count = 0, gap = -1;
  while (text < end && *text != ']') {
    uint64_t group;
    if (starts(text, end, "::") && gap < 0) {
      gap = count;
      text += 2;
      continue;
    }
    if (count > 0 && gap != count && *text++ != ':') return NULL;
    text = number(text, end, 16, 4, &group);
    if (text == NULL || count == 16) return NULL;
    bytes[count++] = (uint8_t)(group >> 8);
    bytes[count++] = (uint8_t)group;
  }
  if (gap < 0 ? count != 16 : count == 16) return NULL;
  memset(to, 0, sizeof(address));
  for (int i = 0; i < count; i++) to[gap >= 0 && i >= gap ? 16 - count + i : i] = bytes[i];
  return text;
}

/* `1.2.3.4:PORT` or `[fd00::1]:PORT`. @returns whether it is one */
static int read_target(const char *text, address to, uint16_t *port) {
  const char *end = text + length_of(text);
  uint64_t value;
  if (*text == '[') {
    text = read_groups(text + 1, end, to);
    if (text == NULL || text == end || *text++ != ']') return 0;
  } else {
    text = read_dotted(text, end, to);
  }
  if (text == NULL || text == end || *text++ != ':') return 0;
  text = number(text, end, 10, 5, &value);
  if (text != end || value == 0 || value > 65535) return 0;
  *port = (uint16_t)value;
  return 1;
}

/* ---- The pod as a witness: what /proc/net says of this network namespace ---- */

/* Each line of a file, while `each` returns 1. @returns whether it was read to its end, in time */
static int each_line(const char *path, int64_t until, int (*each)(const char *line, const char *end)) {
  static char piece[16384];
  size_t held = 0;
  int whole = 0;
  long file = kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
  if (file < 0) return 0;
  while (worked() < until && held < sizeof piece) {
    long got = kernel(SYS_read, file, (long)(piece + held), (long)(sizeof piece - held), 0, 0, 0);
    if (got == -EINTR) continue;
    if (got <= 0) {
      whole = got == 0;
      break;
    }
    size_t filled = held + (size_t)got, from = 0;
    for (size_t at = held; at < filled; at++) {
      if (piece[at] != '\n') continue;
      if (!each(piece + from, piece + at)) goto ended;
      from = at + 1;
    }
    held = filled - from;
    for (size_t i = 0; i < held; i++) piece[i] = piece[from + i];
  }
ended:
  kernel(SYS_close, file, 0, 0, 0, 0, 0);
  return whole;
}

struct count {
  int known;
  uint64_t value;
};

static struct {
  struct count opens, udp, udp6;
  /* The place of the wanted number in its line, as the line of names before it says. */
  int opens_at, udp_at;
} counters;

static const char *next_word(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  return at;
}

static const char *word_end(const char *at, const char *end) {
  while (at < end && *at != ' ' && *at != '\t') at++;
  return at;
}

/* Of two lines that begin alike, the first holds names and the second numbers. */
static void read_pair(const char *at, const char *end, const char *wanted, int *place, struct count *count) {
  int is_names = *place < 0;
  for (int i = 0; (at = next_word(at, end)) < end; i++) {
    const char *after = word_end(at, end);
    if (is_names && starts(at, after, wanted) && (size_t)(after - at) == length_of(wanted)) *place = i;
    if (!is_names && i == *place) count->known = number(at, after, 10, 20, &count->value) == after;
    at = after;
  }
}

static int snmp_line(const char *line, const char *end) {
  if (starts(line, end, "Tcp:")) read_pair(line + 4, end, "PassiveOpens", &counters.opens_at, &counters.opens);
  if (starts(line, end, "Udp:")) read_pair(line + 4, end, "InDatagrams", &counters.udp_at, &counters.udp);
  return 1;
}

static int snmp6_line(const char *line, const char *end) {
  if (!starts(line, end, "Udp6InDatagrams")) return 1;
  const char *at = next_word(line + length_of("Udp6InDatagrams"), end);
  counters.udp6.known = number(at, end, 10, 20, &counters.udp6.value) != NULL;
  return 0;
}

static void read_counters(void) {
  int64_t until = worked() + TABLES_WITHIN;
  counters.opens.known = counters.udp.known = counters.udp6.known = 0;
  counters.opens_at = counters.udp_at = -1;
  each_line(PROC_NET "snmp", until, snmp_line);
  each_line(PROC_NET "snmp6", until, snmp6_line);
  /* TCP counts both families in one number, UDP does not. */
  if (counters.udp.known && counters.udp6.known) counters.udp.value += counters.udp6.value;
}

/* Connections that were accepted here, each as a hash; one within the pod has the lowest bit. */
struct connections {
  uint64_t hashes[MOST_SOCKETS];
  size_t count;
};

static struct {
  struct connections one, other, *present, *before;
  /* Whether `before` holds a whole sample. */
  int has_before;
  uint64_t seed;
  /* By port: whether anybody has listened on it. */
  uint8_t listening[65536 / 8];
  /* The pod's own, as its connections show them. */
  address own[MOST_OWN];
  size_t own_count;
  size_t rows, bytes;
  uint64_t established;
  /* What no line has told yet. */
  address remotes[MOST_REMOTES];
  size_t remote_count;
} sockets;

static int is_listening(uint16_t port) { return sockets.listening[port >> 3] >> (port & 7) & 1; }

static int is_own(const address a) {
  for (size_t i = 0; i < sockets.own_count; i++)
    if (same(a, sockets.own[i], sizeof(address))) return 1;
  return 0;
}

static uint64_t mix(uint64_t hash, const uint8_t *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash ^ hash >> 29;
}

static uint64_t hash_of(const address server, uint16_t port, const address client, uint16_t from) {
  uint16_t ports[2] = {port, from};
  uint64_t hash = mix(sockets.seed, server, sizeof(address));
  return mix(mix(hash, client, sizeof(address)), (const uint8_t *)ports, sizeof ports);
}

static int is_among(const struct connections *all, uint64_t hash) {
  size_t from = 0, to = all->count;
  while (from < to) {
    size_t middle = (from + to) / 2;
    if (all->hashes[middle] == hash) return 1;
    if (all->hashes[middle] < hash) from = middle + 1;
    else to = middle;
  }
  return 0;
}

/* Shell's sort: no recursion, no memory, some milliseconds for 50,000. */
static void sort(struct connections *all) {
  for (size_t gap = all->count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
    for (size_t i = gap; i < all->count; i++) {
      uint64_t hash = all->hashes[i];
      size_t at = i;
      for (; at >= gap && all->hashes[at - gap] > hash; at -= gap) all->hashes[at] = all->hashes[at - gap];
      all->hashes[at] = hash;
    }
}

static void remember_remote(const address remote) {
  if (sockets.remote_count == MOST_REMOTES) return;
  for (size_t i = 0; i < sockets.remote_count; i++)
    if (same(remote, sockets.remotes[i], sizeof(address))) return;
  memcpy(sockets.remotes[sockets.remote_count++], remote, sizeof(address));
}

/* An address in words of 32 bits as this machine reads them, and its port: `0100007F:1F90`. */
static const char *read_end(const char *at, const char *end, address to, uint16_t *port) {
  const char *colon = at;
  uint64_t value;
  while (colon < end && *colon != ':') colon++;
  int words = colon - at == 8 ? 1 : colon - at == 32 ? 4 : 0;
  if (words == 0) return NULL;
  memcpy(to, MAPPED, sizeof(address));
  for (int word = 0; word < words; word++, at += 8) {
    if (number(at, at + 8, 16, 8, &value) != at + 8) return NULL;
    for (int i = 0; i < 4; i++) to[(4 - words + word) * 4 % 16 + i] = (uint8_t)(value >> 8 * i);
  }
  at = number(colon + 1, end, 16, 4, &value);
  *port = (uint16_t)value;
  return at;
}

/* Source: include/net/tcp_states.h */
enum { ESTABLISHED = 1, SYN_SENT = 2, SYN_RECV = 3, CLOSE = 7, LISTEN = 10 };

/* A row of /proc/net/tcp or tcp6. */
static int socket_line(const char *line, const char *end) {
  address local, remote;
  uint16_t port, from;
  uint64_t state;
  sockets.bytes += (size_t)(end - line);
  if (++sockets.rows > MOST_SOCKETS || sockets.bytes > MOST_TABLE_BYTES) return 0;
  const char *at = next_word(word_end(next_word(line, end), end), end);
  if ((at = read_end(at, end, local, &port)) == NULL) return 1;
  if ((at = read_end(next_word(at, end), end, remote, &from)) == NULL) return 1;
  if (number(next_word(at, end), end, 16, 2, &state) == NULL) return 1;
  if (state == LISTEN) {
    sockets.listening[port >> 3] |= (uint8_t)(1 << (port & 7));
    return 1;
  }
  /* No connection yet, or none any more. */
  if (state == SYN_SENT || state == SYN_RECV || state == CLOSE) return 1;
  if (!is_loopback(local) && !is_own(local) && sockets.own_count < MOST_OWN)
    memcpy(sockets.own[sockets.own_count++], local, sizeof(address));
  int within = is_loopback(remote) || is_own(remote);
  int accepted = is_listening(port);
  /* Where the client closed first, only its end of a connection within the pod is left. */
  if (!accepted && !(within && is_listening(from))) return 1;
  uint64_t hash = accepted ? hash_of(local, port, remote, from) : hash_of(remote, from, local, port);
  hash = (hash & ~(uint64_t)1) | (uint64_t)within;
  sockets.present->hashes[sockets.present->count++] = hash;
  if (within) return 1;
  if (state == ESTABLISHED) sockets.established++;
  if (!is_among(sockets.before, hash)) remember_remote(remote);
  return 1;
}

/* @returns how many connections within the pod are there that were not before */
static uint64_t count_new_within(void) {
  const struct connections *present = sockets.present;
  uint64_t count = 0;
  for (size_t i = 0; i < present->count; i++) {
    uint64_t hash = present->hashes[i];
    int again = i > 0 && present->hashes[i - 1] == hash;
    if ((hash & 1) != 0 && !again && !is_among(sockets.before, hash)) count++;
  }
  return count;
}

static struct {
  struct count established, loopback;
  struct count opens_then;
  int64_t tables_at;
} seen;

static void read_tables(void) {
  int64_t until = worked() + TABLES_WITHIN;
  sockets.present->count = sockets.rows = sockets.bytes = 0;
  sockets.established = 0;
  int whole = each_line(PROC_NET "tcp", until, socket_line);
  /* Without IPv6 there is no such file. */
  long six = kernel(SYS_openat, AT_FDCWD, (long)PROC_NET "tcp6", O_RDONLY | O_CLOEXEC, 0, 0, 0);
  if (six >= 0) kernel(SYS_close, six, 0, 0, 0, 0, 0);
  if (six != -ENOENT) whole = each_line(PROC_NET "tcp6", until, socket_line) && whole;
  seen.established = (struct count){whole, sockets.established};
  seen.loopback.known = whole && sockets.has_before;
  if (whole) {
    sort(sockets.present);
    seen.loopback.value = count_new_within();
    struct connections *before = sockets.before;
    sockets.before = sockets.present;
    sockets.present = before;
  }
  sockets.has_before = whole;
}

/*
 * Reading the tables costs the kernel a walk through the connections of the whole node: it is done when a connection
 * has come since, and otherwise now and then. When none has come, none has come from within the pod.
 */
static void look(int64_t at) {
  read_counters();
  int came = !counters.opens.known || !seen.opens_then.known || counters.opens.value != seen.opens_then.value;
  seen.opens_then = counters.opens;
  seen.loopback = (struct count){sockets.has_before, 0};
  if (!came && at - seen.tables_at < TABLES_EVERY) return;
  seen.tables_at = at;
  read_tables();
  /* Again, so that no connection of the tables is missing in the number. */
  read_counters();
}

static char *write_count(char *to, struct count count) {
  *to++ = ' ';
  return count.known ? write_number(to, count.value, 10) : write_text(to, "-");
}

/* The line of what has been seen. */
static char *write_sample(char *to) {
  const char *room = to + LINE - ADDRESS_LENGTH - length_of(", 18446744073709551615\n");
  to = write_text(to, "w");
  to = write_count(write_count(write_count(to, counters.opens), counters.udp), seen.established);
  *to++ = ' ';
  size_t told = 0;
  for (; told < sockets.remote_count && to < room; told++) {
    if (told > 0) *to++ = ',';
    to = write_address(to, sockets.remotes[told]);
  }
  if (told == 0) *to++ = '-';
  /* What found no room is for the next line. */
  for (size_t i = told; i < sockets.remote_count; i++)
    memcpy(sockets.remotes[i - told], sockets.remotes[i], sizeof(address));
  sockets.remote_count -= told;
  to = write_count(to, seen.loopback);
  *to++ = '\n';
  return to;
}

/* ---- The connection to Linger, and the rule ---- */

static struct {
  int64_t begun, least, most;
  /* Linger has said `holding`, and not `unsure` since. */
  int held;
  /* Since when it has been out of touch; only once held. */
  int64_t lost_at;
} rule;

static int64_t rule_end(int in_touch) {
  int64_t end = rule.least;
  if (rule.held && in_touch) return rule.most;
  if (rule.held && rule.lost_at + AFTER_LOSS > end) end = rule.lost_at + AFTER_LOSS;
  return end < rule.most ? end : rule.most;
}

static struct {
  enum { RESTING, CONNECTING, TALKING } state;
  address to;
  uint16_t port;
  const char *token;
  long socket;
  /* When the state ends of itself: a pause, a connect that takes too long, a silence. */
  int64_t until;
  int64_t pause;
  uint64_t random;
  /* `holding` has been said on this connection. */
  int holding;
  int64_t sample_at;
  char in[LINE];
  size_t in_length;
  /* Since `heard_from`, for at most as long as a silence. */
  size_t heard;
  int64_t heard_from;
  char out[LINE];
  size_t out_at, out_length;
} line;

/* A value from `least` to twice that. */
static int64_t jittered(int64_t least) {
  line.random ^= line.random << 13;
  line.random ^= line.random >> 7;
  line.random ^= line.random << 17;
  return least + (int64_t)(line.random % (uint64_t)(least + 1));
}

static void hang_up(int64_t at) {
  if (line.socket >= 0) kernel(SYS_close, line.socket, 0, 0, 0, 0, 0);
  if (line.holding) rule.lost_at = at;
  line.socket = -1;
  line.holding = 0;
  line.state = RESTING;
  line.until = at + jittered(line.pause / 2);
  line.pause = line.pause * 2 < LONGEST_PAUSE ? line.pause * 2 : LONGEST_PAUSE;
}

static void call(int64_t at) {
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } to = {0};
  int four = is_mapped(line.to);
  uint16_t port = (uint16_t)(line.port << 8 | line.port >> 8);
  if (four) {
    to.four.sin_family = AF_INET;
    to.four.sin_port = port;
    memcpy(&to.four.sin_addr, line.to + 12, 4);
  } else {
    to.six.sin6_family = AF_INET6;
    to.six.sin6_port = port;
    memcpy(&to.six.sin6_addr, line.to, 16);
  }
  long kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  line.socket = kernel(SYS_socket, to.any.sa_family, kind, 0, 0, 0, 0);
  long size = four ? sizeof to.four : sizeof to.six;
  long result = line.socket < 0 ? line.socket : kernel(SYS_connect, line.socket, (long)&to, size, 0, 0, 0);
  if (result < 0 && result != -EINPROGRESS) {
    hang_up(at);
    return;
  }
  line.state = CONNECTING;
  line.until = at + CONNECT_WITHIN;
}

/* Sends what is to be said, as far as it goes. */
static void speak(int64_t at) {
  const char *from = line.out + line.out_at;
  long size = (long)(line.out_length - line.out_at);
  long sent = kernel(SYS_sendto, line.socket, (long)from, size, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
  if (sent == -EAGAIN || sent == -EINTR) return;
  if (sent < 0) {
    hang_up(at);
    return;
  }
  line.out_at += (size_t)sent;
  if (line.out_at == line.out_length) line.out_at = line.out_length = 0;
}

static void greet(int64_t at) {
  line.state = TALKING;
  line.until = at + SILENCE;
  line.in_length = line.heard = line.out_at = 0;
  line.heard_from = line.sample_at = at;
  char *end = write_text(write_text(line.out, "linger-hold/1 "), line.token);
  *end++ = ' ';
  end = write_number(end, (uint64_t)(at - rule.begun), 10);
  *end++ = '\n';
  line.out_length = (size_t)(end - line.out);
  speak(at);
}

static int said(const char *word) {
  return line.in_length == length_of(word) && starts(line.in, line.in + line.in_length, word);
}

/* Takes what has been said. @returns whether that is `release` */
static int hear(int64_t at) {
  char heard[4096];
  long got = kernel(SYS_recvfrom, line.socket, (long)heard, sizeof heard, MSG_DONTWAIT, 0, 0);
  if (got == -EAGAIN || got == -EINTR) return 0;
  if (got <= 0) {
    hang_up(at);
    return 0;
  }
  line.until = at + SILENCE;
  if (at - line.heard_from >= SILENCE) {
    line.heard = 0;
    line.heard_from = at;
  }
  line.heard += (size_t)got;
  for (long i = 0; i < got; i++) {
    if (heard[i] != '\n') {
      if (line.in_length == LINE) {
        hang_up(at);
        return 0;
      }
      line.in[line.in_length++] = heard[i];
      continue;
    }
    if (said("release")) return 1;
    if (said("holding")) {
      rule.held = line.holding = 1;
      line.pause = FIRST_PAUSE;
    }
    if (said("unsure")) {
      rule.held = line.holding = 0;
      hang_up(at);
      return 0;
    }
    line.in_length = 0;
  }
  if (line.heard > MOST_HEARD) hang_up(at);
  return 0;
}

/* At most a tenth of the time goes into looking. */
static void testify(int64_t at) {
  int64_t before = worked();
  look(at);
  int64_t took = worked() - before;
  line.sample_at = at + (took * 10 > SAMPLE_EVERY ? took * 10 : SAMPLE_EVERY);
  line.out_length = (size_t)(write_sample(line.out) - line.out);
  speak(at);
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

static void wait_for_release(int can_call) {
  line.socket = -1;
  line.pause = FIRST_PAUSE;
  line.until = rule.begun;
  for (;;) {
    int64_t at = now();
    if (at >= rule_end(line.holding)) return;
    if (can_call && at >= line.until) {
      if (line.state == RESTING) call(at);
      else hang_up(at);
    }
    if (line.holding && line.out_length == 0 && at >= line.sample_at) testify(at);
    int64_t next = rule_end(line.holding);
    if (can_call) next = earlier(next, line.until);
    if (line.holding && line.out_length == 0) next = earlier(next, line.sample_at);
    int64_t pause = next - now();
    if (pause < 0) pause = 0;
    struct timespec timeout = {pause / 1000, pause % 1000 * 1000000};
    int wants_out = line.state == CONNECTING || line.out_length > 0;
    struct pollfd wanted = {(int)line.socket, (short)(wants_out ? POLLIN | POLLOUT : POLLIN), 0};
    long ready = kernel(SYS_ppoll, (long)&wanted, line.socket >= 0, (long)&timeout, 0, 0, 0);
    if (ready <= 0) continue;
    at = now();
    if (line.state == CONNECTING) greet(at);
    else if ((wanted.revents & ~POLLOUT) != 0 && hear(at)) return;
    if (line.state == TALKING && line.out_length > 0) speak(at);
  }
}

/* ---- The command line ---- */

/* @returns whether the text is a number of seconds */
static int read_seconds(const char *text, int64_t *milliseconds) {
  const char *end = text + length_of(text);
  uint64_t value;
  if (number(text, end, 10, 12, &value) != end) return 0;
  *milliseconds = (int64_t)(value < LONGEST_WAIT ? value : LONGEST_WAIT) * SECOND;
  return 1;
}

static int is_token(const char *text) {
  if (length_of(text) != TOKEN_LENGTH) return 0;
  for (; *text != 0; text++) {
    char c = *text;
    int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '_') return 0;
  }
  return 1;
}

/*
 * What cannot be read must neither end the wait early nor make it endless: without an address or a token nobody is
 * called; without STATIC the standard wait holds; MAX is never less than STATIC.
 * @param stack as the kernel leaves it: the number of arguments, they, NULL, the environment, NULL, the auxiliary vector
 */
__attribute__((used, noreturn)) void begin(const uintptr_t *stack) {
  uintptr_t count = stack[0];
  const char *const *arguments = (const char *const *)(stack + 1);
  const uintptr_t *after = stack + 1 + count + 1;
  rule.begun = now();
  line.random = (uint64_t)rule.begun + 1;
  while (*after++ != 0) continue;
  for (; after[0] != 0; after += 2)
    if (after[0] == 25 /* AT_RANDOM: 16 bytes */) {
      memcpy(&sockets.seed, (const void *)after[1], 8);
      memcpy(&line.random, (const uint8_t *)after[1] + 8, 8);
      line.random |= 1;
    }
  sockets.present = &sockets.one;
  sockets.before = &sockets.other;

  int64_t least = (int64_t)STANDARD_WAIT * SECOND, most = 0;
  if (count > 3) read_seconds(arguments[3], &least);
  if (count > 4) read_seconds(arguments[4], &most);
  rule.least = rule.begun + least;
  rule.most = rule.begun + (most > least ? most : least);
  int can_call = count > 2 && read_target(arguments[1], line.to, &line.port) && is_token(arguments[2]);
  if (can_call) line.token = arguments[2];
  wait_for_release(can_call);
  leave();
  __builtin_unreachable();
}
