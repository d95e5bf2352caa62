/*
 * The floor: a server that reads requests of the client protocol from a unix stream socket and sends replies of the
 * sizes that the service's have, without looking anything up. One thread, one epoll, one recv and one send for what a
 * connection has to say: nothing that answers over such a socket does less.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEADER = 16, ENTRY = 72, LARGEST = HEADER + 8 * ENTRY, EVENTS = 256, INPUT = 65536 };

/* What a connection has sent of a request that is not whole. */
struct part {
	unsigned length;
	char bytes[LARGEST];
};

static char input[INPUT], output[2 * INPUT];
static struct part **parts;

/* A reply to one request: with a source in it a path, without one the path and the source. */
static unsigned reply(const char *request, unsigned length, char *to)
{
	unsigned entries = length == HEADER + ENTRY ? 2 : 1;
	uint16_t size = (uint16_t)(HEADER + entries * ENTRY);

	memcpy(to, request, HEADER);
	to[1] = (char)(to[1] | 0x80);
	memcpy(to + 6, &size, sizeof size);
	memset(to + HEADER, 0x2b, size - HEADER);
	return size;
}

static void end(int fd)
{
	free(parts[fd]);
	parts[fd] = NULL;
	close(fd);
}

static void serve(int fd)
{
	struct part *part = parts[fd];
	unsigned have = 0, at = 0, out = 0;
	uint16_t length;
	ssize_t n;

	if (part) {
		memcpy(input, part->bytes, part->length);
		have = part->length;
		part->length = 0;
	}
	/* Replies are at most twice as long as requests. */
	n = recv(fd, input + have, INPUT - have, MSG_DONTWAIT);
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			end(fd);
		return;
	}
	have += (unsigned)n;
	while (have - at >= HEADER) {
		memcpy(&length, input + at + 6, sizeof length);
		if (length < HEADER + ENTRY || length > LARGEST) {
			end(fd);
			return;
		}
		if (have - at < length)
			break;
		out += reply(input + at, length, output + out);
		at += length;
	}
	if (at < have) {
		if (!part && !(part = parts[fd] = malloc(sizeof *part)))
			abort();
		part->length = have - at;
		memcpy(part->bytes, input + at, part->length);
	}
	if (out && send(fd, output, out, MSG_NOSIGNAL) != (ssize_t)out)
		end(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct epoll_event events[EVENTS], event = { .events = EPOLLIN };
	struct rlimit limit;
	int listener, epoll, n, i;

	if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) {
		fprintf(stderr, "floor SOCKET\n");
		return 2;
	}
	strcpy(address.sun_path, argv[1]);
	unlink(argv[1]);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (getrlimit(RLIMIT_NOFILE, &limit) || !(parts = calloc(limit.rlim_cur, sizeof *parts)) || listener < 0 ||
	    epoll < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
		perror("floor");
		return 1;
	}
	event.data.fd = listener;
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	for (;;) {
		n = epoll_wait(epoll, events, EVENTS, -1);
		for (i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd != listener) {
				serve(fd);
				continue;
			}
			while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
				event.data.fd = fd;
				epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
			}
		}
	}
}
