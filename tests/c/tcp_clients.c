/*
 * Many clients over TCP: each connects, asks for the service's counters and stays.
 *
 *     tcp_clients ADDRESS PORT COUNT
 *
 * Prints "refused" if the first cannot connect, "served COUNT" once every one has its answer, and then waits for the end
 * of standard input, or of the service: "closed".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	/* Version 1, operation 2, length 16 in network order. */
	const unsigned char question[16] = { 1, 2, 0, 0, 0, 0, 0, 16 };
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct timeval patience = { .tv_sec = 10 };
	struct rlimit limit;
	unsigned char answer[256];
	int count, i, fd = -1;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons(atoi(argv[2]));
	count = atoi(argv[3]);
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 2;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (i = 0; i < count; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
			return 2;
		if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
			printf(i || errno != ECONNREFUSED ? "failed after %d\n" : "refused\n", i);
			return 1;
		}
		if (send(fd, question, sizeof(question), MSG_NOSIGNAL) != sizeof(question))
			return 2;
		if (recv(fd, answer, sizeof(answer), 0) != 16 + 7 * 8 || answer[1] != 0x82 || answer[2]) {
			printf("no answer to %d\n", i);
			return 1;
		}
	}
	printf("served %d\n", count);
	fflush(stdout);
	struct pollfd ends[2] = { { .fd = 0, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	if (poll(ends, 2, 20000) > 0 && ends[1].revents && recv(fd, answer, sizeof(answer), 0) == 0)
		printf("closed\n");
	return 0;
}
