/*
 * helper-fuzz COUNT SEED SNMP SNMP6 TCP TCP6
 *
 * Has the helper look at COUNT changed copies of /proc/net. It ends with 0; a sanitizer, or the alarm of a look that does not end,
 * ends it otherwise. HELPER is the helper's source, with another name for its entry.
 */
#define memcpy helper_memcpy
#define memset helper_memset
#define PROC_NET "./"
#include HELPER
#undef memcpy
#undef memset
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLES = 4, LARGEST = 1 << 16, MOST_SECONDS = 10 };

static const char *const NAMES[TABLES] = {"snmp", "snmp6", "tcp", "tcp6"};
static const char *const WORDS[] = {"\t",   " \t ", "\n",    "Tcp:",         "Udp:",       "PassiveOpens",         "InDatagrams",
                                    "\n\n", "0A",   ":FFFF", "Udp6InDatagrams", "4294967296", "18446744073709551616", "-1"};

static struct table {
  char bytes[LARGEST];
  size_t length;
} given[TABLES], changed;

static uint64_t state;

static size_t below(size_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return bound == 0 ? 0 : state % bound;
}

/* Puts bytes in the place of `gone` others, as far as there is room. */
static void splice(size_t at, size_t gone, const char *bytes, size_t length) {
  if (changed.length - gone + length > LARGEST) return;
  memmove(changed.bytes + at + length, changed.bytes + at + gone, changed.length - at - gone);
  memcpy(changed.bytes + at, bytes, length);
  changed.length += length - gone;
}

static void change(void) {
  static char piece[LARGEST];
  size_t at = below(changed.length + 1);
  size_t length = below(changed.length - at + 1);
  if (length > 64) length = below(64);
  const char *word = WORDS[below(sizeof WORDS / sizeof *WORDS)];
  memcpy(piece, changed.bytes + at, length);
  switch (below(5)) {
  case 0:
    for (size_t i = 0; i < length; i++) changed.bytes[at + i] = (char)below(256);
    break;
  case 1:
    splice(at, length, "", 0);
    break;
  case 2:
    for (size_t copies = below(below(4) == 0 ? 2048 : 8); copies > 0; copies--) splice(at, 0, piece, length);
    break;
  case 3:
    for (size_t copies = 1 + below(below(8) == 0 ? 4096 : 2); copies > 0; copies--) splice(at, 0, word, strlen(word));
    break;
  default:
    changed.length = at;
  }
}

static void save(const char *name) {
  FILE *file = fopen(name, "wb");
  if (file == NULL || fwrite(changed.bytes, 1, changed.length, file) != changed.length) abort();
  fclose(file);
}

int main(int count, char **words) {
  if (count != 3 + TABLES) return 2;
  long looks = atol(words[1]);
  state = strtoull(words[2], NULL, 10) * 2654435761u + 1;
  for (int i = 0; i < TABLES; i++) {
    FILE *file = fopen(words[3 + i], "rb");
    if (file == NULL) return 2;
    given[i].length = fread(given[i].bytes, 1, LARGEST, file);
    fclose(file);
    changed = given[i];
    save(NAMES[i]);
  }
  sockets.present = &sockets.one;
  sockets.before = &sockets.other;
  for (long each = 0; each < looks; each++) {
    static char line[LINE];
    int table = (int)below(TABLES);
    changed = given[table];
    for (size_t changes = 1 + below(4); changes > 0; changes--) change();
    save(NAMES[table]);
    alarm(MOST_SECONDS);
    look(each * TABLES_EVERY);
    const char *end = write_sample(line);
    if (end > line + LINE || end[-1] != '\n') abort();
    if (below(8) == 0) {
      changed = given[table];
      save(NAMES[table]);
    }
  }
  return 0;
}
