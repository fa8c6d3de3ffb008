package io.keymill.support;

import io.keymill.Mill;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URL;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Refuses a module's jar and a core jar of different versions. */
public final class Versions {
    private static final String SUPPORT = "keymill-support";
    /** The modules that are of the core's version. */
    private static final Set<String> SAME = ConcurrentHashMap.newKeySet();

    private Versions() {}

    /** Read once for all modules: each reading opens the jar. */
    private static final class Core {
        static final String VERSION = version(Mill.class, "io/keymill/version");
    }

    /**
     * Compares a module's version with the core's and this jar's. Each module calls it at start before anything else, since a method that
     * another version does not have would only give a {@code NoSuchMethodError}. So the signature stays in every version.
     *
     * @param artifact the module's name in Maven
     * @param type a class of the module
     * @throws IllegalStateException if the versions differ, with both
     */
    public static void check(String artifact, Class<?> type) {
        if (!SAME.contains(artifact)) {
            compare(SUPPORT, Versions.class);
            compare(artifact, type);
            SAME.add(artifact);
        }
    }

    private static void compare(String artifact, Class<?> type) {
        String core = Core.VERSION;
        String found = version(type, "META-INF/keymill/" + artifact + "/version");
        if (core != null && found != null && !core.equals(found)) {
            throw new IllegalStateException(artifact + " is of version " + found + " (" + base(type) + " with " + type.getName() + "), and keymill of version " + core + " (" + base(Mill.class) + " with " + Mill.class.getName()
                    + "); give every artifact of io.keymill the same version in the pom's <dependencyManagement>: <dependency><groupId>io.keymill</groupId><artifactId>keymill</artifactId><version>" + found + "</version></dependency>, and the same for " + artifact);
        }
    }

    /** Of the jar or folder that has this class, and of no other on the class path; null where it has none. */
    private static String version(Class<?> type, String name) {
        String base = base(type);
        if (base == null) {
            return null;
        }
        try {
            // With the class's own handler: a jar in a jar has a handler that may not be known everywhere.
            URLConnection connection = new URL(type.getResource(file(type)), base + name).openConnection();
            connection.setUseCaches(false);
            try (InputStream in = connection.getInputStream(); BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8))) {
                return lines.readLine();
            }
        } catch (IOException e) {
            return null;
        }
    }

    private static String base(Class<?> type) {
        URL url = type.getResource(file(type));
        String text = url == null ? "" : url.toString();
        String path = type.getName().replace('.', '/') + ".class";
        return text.endsWith(path) ? text.substring(0, text.length() - path.length()) : null;
    }

    private static String file(Class<?> type) {
        return "/" + type.getName().replace('.', '/') + ".class";
    }
}
