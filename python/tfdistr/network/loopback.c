/* A local cluster preloads this library (LD_PRELOAD) into its workers: servers that would listen on all
 * interfaces of this machine listen on its loopback interface only. See loopback.py beside this file.
 *
 * A TCP socket that is bound to 0.0.0.0 or :: and a port is bound to the loopback address instead. A socket
 * for both IPv4 and IPv6 gets the loopback address of IPv4, because TF_CONFIG has addresses of 127.0.0.1.
 * If the system chooses the port, bind() cannot distinguish a server from a client, and a client must reach
 * the network. Such a socket is tied to the interface when it begins to listen (for an ordinary user: since
 * Linux 5.7). Other addresses, clients and datagrams are not changed.
 */

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#ifndef RTLD_NEXT /* The C library defines it only together with other types for bind(). */
#define RTLD_NEXT ((void *)-1L)
#endif
#define LOOPBACK "lo"

/* The port, in network order, if the address means all interfaces; -1 for another address. */
static int port_on_all(const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;

    if (address && length >= sizeof four && address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        return four.sin_addr.s_addr == htonl(INADDR_ANY) ? four.sin_port : -1;
    }
    if (address && length >= sizeof six && address->sa_family == AF_INET6) {
        memcpy(&six, address, sizeof six);
        if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
            memset(&six.sin6_addr.s6_addr[10], 0, 2); /* ::ffff:0.0.0.0 is the same */
        return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) ? six.sin6_port : -1;
    }
    return -1;
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t length = sizeof value;

    return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    static const unsigned char mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    struct sockaddr_in four;
    struct sockaddr_in6 six;

    if (port_on_all(address, length) <= 0 || option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM)
        return next(fd, address, length);
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return next(fd, (struct sockaddr *)&four, sizeof four);
    }
    memcpy(&six, address, sizeof six);
    if (option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1)
        six.sin6_addr = in6addr_loopback;
    else
        memcpy(&six.sin6_addr, mapped, sizeof mapped); /* ::ffff:127.0.0.1 */
    return next(fd, (struct sockaddr *)&six, sizeof six);
}

int listen(int fd, int backlog)
{
    int (*next)(int, int) = dlsym(RTLD_NEXT, "listen");
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    int before = errno;

    if (getsockname(fd, (struct sockaddr *)&own, &length) == 0 && port_on_all((struct sockaddr *)&own, length) >= 0)
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, LOOPBACK, sizeof LOOPBACK);
    errno = before;
    return next(fd, backlog);
}
