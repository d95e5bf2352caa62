/*
 * Forks again and again while threads make calls: generations SOCKET. Says how many grandchildren, children of a
 * process whose threads make their first calls, and how many children of one that asks for devices, did not end well.
 */
#include <infiniband/ib_acm.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4

static atomic_int stop;

static void *first_call(void *unused)
{
	ib_acm_connect();
	return unused;
}

/* The path starts at no device, so that devices are asked for it each time. */
static int ask_devices(void)
{
	struct ib_path_record path;
	struct ib_acm_dev_addr dev;

	memset(&path, 7, sizeof(path));
	return ib_acm_convert_from_path(&path, &dev, NULL, NULL) == -1 && errno == ENODEV;
}

static void *ask_for_ever(void *unused)
{
	while (!stop)
		ask_devices();
	return unused;
}

static int ended_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && !status;
}

static void in_grandchild(int round)
{
	pthread_t thread;
	volatile int i;
	pid_t child;

	for (i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, first_call, NULL);
	for (i = rand() % 60000 + round * 7; i > 0; i--)
		;
	child = fork();
	if (!child) {
		/* A lock that nobody releases would be waited for without end. */
		alarm(10);
		_exit(ib_acm_connect() != 0);
	}
	_exit(!ended_well(child));
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	int i, grandchildren = 0, children = 0;

	if (argc != 2 || ib_acm_set_server(argv[1]) || ib_acm_set_timeout(8000) || ib_acm_connect())
		return 2;
	for (i = 0; i < 200; i++) {
		pid_t child = fork();

		if (!child)
			in_grandchild(i);
		grandchildren += !ended_well(child);
	}
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, ask_for_ever, NULL);
	for (i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child) {
			alarm(10);
			_exit(!ask_devices());
		}
		children += !ended_well(child);
	}
	stop = 1;
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%d %d\n", grandchildren, children);
	return 0;
}
