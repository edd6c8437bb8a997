/* Moves the wall clock of the program that this is loaded into, by the seconds that stand in the file CLOCK_FILE names.
   Only what asks clock_gettime is fooled: timed waits of the C library go by the real clock, as they do on a machine
   whose clock is set while somebody waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  long answer = syscall(SYS_clock_gettime, clock, now);
  const char *file = getenv("CLOCK_FILE");
  if (answer == 0 && clock == CLOCK_REALTIME && file) {
    char text[32] = {0};
    int opened = open(file, O_RDONLY | O_CLOEXEC);
    if (opened >= 0) {
      if (read(opened, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
      close(opened);
    }
  }
  return (int)answer;
}
