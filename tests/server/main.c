/* stet-test-server COMMAND ARGUMENT …: run a command with a PostgreSQL server that all test
 * programs in it share. Ends with the command's status; the server is gone afterwards. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"

int
main(int argc, char **argv)
{
    cluster *c;
    pid_t    child;
    int      status = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s COMMAND [ARGUMENT ...]\n", argv[0]);
        return 2;
    }
    if ((c = cluster_new()) != NULL)
        setenv(CLUSTER_ENV, cluster_url_of(c, NULL), 1);
    else
        fprintf(stderr, "%s: %s\n", argv[0], cluster_why()); /* those who need it will fail */
    if ((child = fork()) == 0) {
        execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    signal(SIGINT, SIG_IGN); /* the command's to obey */
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    cluster_free(c);
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
