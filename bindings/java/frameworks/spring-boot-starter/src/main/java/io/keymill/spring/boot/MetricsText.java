package io.keymill.spring.boot;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A mill's metrics, read from their text. */
final class MetricsText {
    /** One value. */
    static final class Sample {
        final String name;
        /** {@code counter}, {@code gauge} or {@code histogram}. */
        final String kind;
        final String help;
        final Map<String, String> labels;
        final double value;

        Sample(String name, String kind, String help, Map<String, String> labels, double value) {
            this.name = name;
            this.kind = kind;
            this.help = help;
            this.labels = labels;
            this.value = value;
        }

        String key() {
            return name + labels;
        }
    }

    private MetricsText() {}

    static List<Sample> read(String text) {
        List<Sample> samples = new ArrayList<>();
        String kind = "";
        String help = "";
        for (String line : text.split("\n")) {
            if (line.startsWith("# HELP ")) {
                help = line.substring(line.indexOf(' ', 7) + 1);
            } else if (line.startsWith("# TYPE ")) {
                kind = line.substring(line.lastIndexOf(' ') + 1);
            } else if (!line.isEmpty() && !line.startsWith("#")) {
                int blank = line.lastIndexOf(' ');
                int brace = line.indexOf('{');
                boolean labelled = brace >= 0 && brace < blank;
                Map<String, String> labels = labelled ? labels(line.substring(brace + 1, blank - 1)) : Collections.emptyMap();
                samples.add(new Sample(line.substring(0, labelled ? brace : blank), kind, help, labels, number(line.substring(blank + 1))));
            }
        }
        return samples;
    }

    private static double number(String text) {
        return text.equals("+Inf") ? Double.POSITIVE_INFINITY : Double.parseDouble(text);
    }

    /** {@code source="segment:orders",code="DEADLINE"}; quotes, backslashes and line ends in a value are escaped. */
    private static Map<String, String> labels(String text) {
        Map<String, String> labels = new LinkedHashMap<>();
        int at = 0;
        while (at < text.length()) {
            int equals = text.indexOf('=', at);
            String name = text.substring(at, equals);
            StringBuilder value = new StringBuilder();
            for (at = equals + 2; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c == '\\') {
                    c = text.charAt(++at);
                    c = c == 'n' ? '\n' : c;
                }
                value.append(c);
            }
            labels.put(name, value.toString());
            // The quote, and a comma.
            at += 2;
        }
        return labels;
    }
}
