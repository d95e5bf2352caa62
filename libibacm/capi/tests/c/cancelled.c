/*
 * Cancels a thread in the middle of a call: cancelled SOCKET. The service there answers for counters only. Says how the
 * thread ended and how many milliseconds some calls took after that.
 */
#include <infiniband/ib_acm.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static atomic_int result;

static void *run(void *unused)
{
	result = ib_acm_resolve(NULL, "10.77.0.2", 0, NULL, NULL);
	if (result == -1)
		result = -errno;
	pthread_testcancel();
	return unused;
}

int main(int argc, char **argv)
{
	struct ib_acm_counters counters;
	struct timespec begin, end;
	pthread_t thread;
	void *ended;
	int i, failed = 0;

	if (argc != 2 || ib_acm_set_server(argv[1]) || ib_acm_set_timeout(500) ||
	    pthread_create(&thread, NULL, run, NULL))
		return 2;
	usleep(200000);
	pthread_cancel(thread);
	pthread_join(thread, &ended);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (i = 0; i < 40; i++)
		failed += ib_acm_query_counters(0, NULL, &counters) != 0;
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%d %d %d %ld\n", ended == PTHREAD_CANCELED, (int)result, failed,
	       (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
	return 0;
}
