package shop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A server's port by way of this process, which can be stopped, started and silenced. */
public final class Relay implements AutoCloseable {
    public final int port;

    private final String host;
    private final int to;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private ServerSocket server;
    private boolean silent;

    public Relay(String host, int to) throws IOException {
        this.host = host;
        this.to = to;
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        port = server.getLocalPort();
        listen(server);
    }

    /** Connections end, and new ones are refused. */
    public synchronized void stop() throws IOException {
        server.close();
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    public synchronized void start() throws IOException {
        server = new ServerSocket();
        server.setReuseAddress(true);
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        listen(server);
    }

    /** While it is silent, connections stay open and carry nothing. */
    public synchronized void silence(boolean silent) {
        this.silent = silent;
        notifyAll();
    }

    private synchronized void awaitVoice() throws IOException {
        while (silent) {
            try {
                wait();
            } catch (InterruptedException e) {
                throw new IOException(e);
            }
        }
    }

    private void listen(ServerSocket listening) {
        thread(() -> {
            while (true) {
                Socket client = listening.accept();
                Socket behind = new Socket(host, to);
                sockets.add(client);
                sockets.add(behind);
                thread(() -> copy(client, behind));
                thread(() -> copy(behind, client));
            }
        });
    }

    private void copy(Socket from, Socket into) throws IOException {
        try (InputStream in = from.getInputStream(); OutputStream out = into.getOutputStream()) {
            byte[] some = new byte[8192];
            for (int count; (count = in.read(some)) > 0; ) {
                awaitVoice();
                out.write(some, 0, count);
            }
        }
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void thread(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException e) {
                // The other end was closed, or this relay stopped.
                return;
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        stop();
    }
}
