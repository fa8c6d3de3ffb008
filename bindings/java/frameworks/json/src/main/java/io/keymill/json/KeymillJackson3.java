package io.keymill.json;

import com.fasterxml.jackson.annotation.JsonFormat;
import java.lang.annotation.Annotation;
import java.lang.reflect.Array;
import tools.jackson.core.JsonGenerator;
import tools.jackson.databind.SerializationContext;
import tools.jackson.databind.ValueSerializer;
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
            JsonFormat format = annotated.getAnnotation(JsonFormat.class);
            if (!Ids.are(annotations(annotated)) || format != null && format.shape().isNumeric()) {
                return null;
            }
            // With the type arguments of the class that the member is looked at in.
            Class<?> type = annotated.getType().getRawClass();
            if (Ids.areNumbers(type)) {
                return Numbers.class;
            }
            return Ids.isNumber(type) ? ToStringSerializer.class : Ids.mayBeNumber(type) ? Anything.class : null;
        }

        @Override
        public Object findContentSerializer(MapperConfig<?> config, Annotated annotated) {
            // The annotations first: the class of an array has no type here.
            return Ids.are(annotations(annotated)) && annotated.getType().isContainerType() && Ids.isNumber(annotated.getType().getContentType().getRawClass()) ? ToStringSerializer.class : null;
        }

        private static Iterable<Annotation> annotations(Annotated annotated) {
            return annotated.annotations().collect(java.util.stream.Collectors.toList());
        }
    }

    /** An array of primitives, for whose elements Jackson asks no serializer. */
    private static final class Numbers extends ValueSerializer<Object> {
        @Override
        public void serialize(Object array, JsonGenerator out, SerializationContext context) {
            out.writeStartArray();
            for (int i = 0; i < Array.getLength(array); i++) {
                out.writeString(Array.get(array, i).toString());
            }
            out.writeEndArray();
        }
    }

    /** What only its value tells: a number, or something else. */
    private static final class Anything extends ValueSerializer<Object> {
        @Override
        public void serialize(Object value, JsonGenerator out, SerializationContext context) {
            if (Ids.isNumber(value.getClass())) {
                out.writeString(value.toString());
            } else {
                context.writeValue(out, value);
            }
        }
    }
}
