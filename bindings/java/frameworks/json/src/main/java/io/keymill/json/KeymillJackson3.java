package io.keymill.json;

import java.lang.annotation.Annotation;
import tools.jackson.databind.cfg.MapperConfig;
import tools.jackson.databind.introspect.Annotated;
import tools.jackson.databind.introspect.NopAnnotationIntrospector;
import tools.jackson.databind.module.SimpleModule;
import tools.jackson.databind.ser.std.ToStringSerializer;

/** Writes ids as text with Jackson 3; its service file lets {@code JsonMapper.builder().findAndAddModules()} find it. */
public class KeymillJackson3 extends SimpleModule {
    private static final long serialVersionUID = 1;

    /** Registered with a mapper. */
    public KeymillJackson3() {
        super("keymill");
    }

    @Override
    public void setupModule(SetupContext context) {
        super.setupModule(context);
        context.insertAnnotationIntrospector(new Introspector());
    }

    private static final class Introspector extends NopAnnotationIntrospector {
        private static final long serialVersionUID = 1;

        @Override
        public Object findSerializer(MapperConfig<?> config, Annotated annotated) {
            return Ids.isNumber(annotated.getRawType()) && Ids.are(annotations(annotated)) ? ToStringSerializer.class : null;
        }

        @Override
        public Object findContentSerializer(MapperConfig<?> config, Annotated annotated) {
            return annotated.getType().isContainerType() && Ids.isNumber(annotated.getType().getContentType().getRawClass()) && Ids.are(annotations(annotated)) ? ToStringSerializer.class : null;
        }

        private static Iterable<Annotation> annotations(Annotated annotated) {
            return annotated.annotations().collect(java.util.stream.Collectors.toList());
        }
    }
}
