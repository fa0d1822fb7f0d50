/* The plain stet command: the whole command line for any store, without handlers of its own. */
#include <stet.h>

int
main(int argc, char **argv)
{
    return stet_main(argc, argv, stet_app_new(NULL));
}
