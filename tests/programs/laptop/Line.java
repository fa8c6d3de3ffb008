import io.keymill.Mill;
import java.net.URL;
import java.net.URLClassLoader;

/** One line of Java: MILL prints three ids. With COUNT, each of so many class loaders prints them, for which it loads a library of its own. */
public class Line {
    public static void main(String[] args) throws Exception {
        if (args.length == 1) {
            try (Mill mill = Mill.open(args[0])) {
                long[] ids = mill.segment("orders").take(3);
                System.out.println(ids[0] + " " + ids[1] + " " + ids[2]);
            }
            return;
        }
        URL[] path = {Mill.class.getProtectionDomain().getCodeSource().getLocation(), Line.class.getProtectionDomain().getCodeSource().getLocation()};
        for (int count = Integer.parseInt(args[1]); count > 0; count--) {
            ClassLoader own = new URLClassLoader(path, ClassLoader.getSystemClassLoader().getParent());
            own.loadClass("Line").getMethod("main", String[].class).invoke(null, (Object) new String[] {args[0]});
        }
    }
}
