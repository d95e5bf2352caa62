/*
 * acm_write(), whose arguments only C can read. Everything else that providers call is in exports.rs.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* exports.rs */
int ibacm_log_enabled(int level);
void ibacm_log_write(int level, const char *text, size_t length);

void acm_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

void acm_write(int level, const char *format, ...)
{
	/* A line of the log is no longer than 2048 bytes. */
	char text[2048 + 1];
	int saved = errno, length;
	va_list args;

	if (!format || !ibacm_log_enabled(level))
		return;
	/* for %m */
	errno = saved;
	va_start(args, format);
	length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (length >= 0)
		ibacm_log_write(level, text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
	errno = saved;
}
