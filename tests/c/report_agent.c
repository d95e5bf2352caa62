/* Has the SA's reports on the first port of a device for itself until it is killed; prints "ready" when it has them. */
#include <stdio.h>
#include <unistd.h>

#include <infiniband/umad.h>

int main(int argc, char **argv)
{
	long reports[16 / sizeof(long)] = { 1 << 6 };
	int port = umad_open_port(argc > 1 ? argv[1] : NULL, 1);

	if (port < 0 || umad_register(port, 3, 2, 0, reports) < 0)
		return 1;
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
