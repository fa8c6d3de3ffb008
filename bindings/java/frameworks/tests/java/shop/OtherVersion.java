package shop;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

/** A class path of the test's jars, one of keymill's being of another version. */
public final class OtherVersion {
    private static final String OTHER = "9.9.9";

    private OtherVersion() {}

    /** Starts an application, a class with a constructor that needs nothing, and expects the error that names both versions. */
    public static void isRefused(String artifact, Class<? extends Runnable> application) {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try (URLClassLoader loader = new URLClassLoader(jars(artifact), ClassLoader.getPlatformClassLoader())) {
            thread.setContextClassLoader(loader);
            Constructor<?> constructor = loader.loadClass(application.getName()).getDeclaredConstructor();
            constructor.setAccessible(true);
            Runnable start = (Runnable) constructor.newInstance();
            String said = Causes.root(assertThrows(Throwable.class, start::run)).toString();
            for (String part : new String[] {"IllegalStateException", artifact + " ", "of version " + OTHER + " (jar:file:", "of version " + own() + " (jar:file:", "give every artifact of io.keymill the same version in the pom's <dependencyManagement>: <dependency><groupId>io.keymill</groupId>"}) {
                assertTrue(said.contains(part), said);
            }
        } catch (IOException | ReflectiveOperationException e) {
            throw new AssertionError(e);
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    private static String own() throws IOException {
        try (InputStream in = io.keymill.Mill.class.getResourceAsStream("version")) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).trim();
        }
    }

    private static URL[] jars(String artifact) throws IOException {
        List<URL> jars = new ArrayList<>();
        boolean found = false;
        for (String name : System.getProperty("java.class.path").split(File.pathSeparator)) {
            Path jar = Path.of(name);
            if (jar.getFileName().toString().matches(artifact + "-[0-9].*[.]jar")) {
                jar = Files.copy(jar, Files.createTempDirectory("other").resolve(artifact + "-" + OTHER + ".jar"));
                jar.toFile().deleteOnExit();
                try (FileSystem files = FileSystems.newFileSystem(jar, (ClassLoader) null)) {
                    Files.writeString(files.getPath(artifact.equals("keymill") ? "io/keymill/version" : "META-INF/keymill/" + artifact + "/version"), OTHER, StandardOpenOption.TRUNCATE_EXISTING);
                }
                found = true;
            }
            jars.add(jar.toUri().toURL());
        }
        assertTrue(found, artifact);
        return jars.toArray(new URL[0]);
    }
}
