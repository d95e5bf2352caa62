/* A program that does what hardware would not forgive is told so, and a test can see it afterwards. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fab_violation(const char *fmt, ...)
{
	char text[512], line[640], path[256];
	int saved = errno, fd, n;
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	n = snprintf(line, sizeof(line), "FABRIC VIOLATION: %s: %s[%d]: %s\n", fab_host(),
		     program_invocation_short_name, (int)getpid(), text);
	if (n >= (int)sizeof(line))
		n = sizeof(line) - 1;
	if (write(STDERR_FILENO, line, n) < 0) {
		/* The file below still has it. */
	}
	snprintf(path, sizeof(path), "%s/violations", fab_dir());
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd >= 0) {
		/* One write, so that lines of several processes don't mix. */
		if (write(fd, line, n) < 0)
			fprintf(stderr, "FABRIC: cannot record the violation above\n");
		close(fd);
	}
	errno = saved;
}
