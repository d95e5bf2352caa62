/* Forks while other threads ask: forks SOCKET. Says how many children and calls had no answer. */
#include <infiniband/ib_acm.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop, failures;

static int ask(void)
{
	struct ib_path_record path;

	memset(&path, 0, sizeof(path));
	path.dlid = 1;
	return ib_acm_resolve_path(&path);
}

static void *run(void *unused)
{
	while (!stop)
		failures += ask() != 0;
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int i, status, children = 0;

	if (argc != 2 || ib_acm_set_server(argv[1]) || ib_acm_set_timeout(5000))
		return 2;
	for (i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			return 3;
	for (i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child) {
			/* A lock that nobody releases would be waited for without end. */
			alarm(10);
			_exit(ask() != 0);
		}
		waitpid(child, &status, 0);
		children += status != 0;
	}
	stop = 1;
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("%d %d\n", children, (int)failures);
	return 0;
}
