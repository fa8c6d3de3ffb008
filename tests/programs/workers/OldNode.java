import java.io.FileOutputStream;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The hand-written KeyFactory at work on the row that keymill shares: CONFIG SPEC LOG, as {@link Worker}. */
public class OldNode {
    public static void main(String[] args) throws Exception {
        URI server = new URI(args[0]);
        String[] user = server.getUserInfo().split(":");
        seed.KeyFactory.url = "jdbc:mariadb://" + server.getHost() + ":" + server.getPort() + server.getPath()
                + "?user=" + user[0] + "&password=" + user[1];
        Matcher spec = Pattern.compile("serial:(\\w+)/(\\w+)\\?number=(0+)&step=(\\d+)").matcher(args[1]);
        if (!spec.matches()) throw new IllegalArgumentException(args[1]);
        try (OutputStream log = new FileOutputStream(args[2], true)) {
            while (true) {
                String serial = seed.KeyFactory.getSerialNoByDS(
                        spec.group(1), spec.group(2), "yyyyMMdd", spec.group(3), Integer.parseInt(spec.group(4)));
                log.write((serial + "\n").getBytes(StandardCharsets.US_ASCII));
            }
        }
    }
}
