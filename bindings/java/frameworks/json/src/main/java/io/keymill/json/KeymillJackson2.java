package io.keymill.json;

import com.fasterxml.jackson.annotation.JsonFormat;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonSerializer;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.introspect.Annotated;
import com.fasterxml.jackson.databind.introspect.AnnotatedMember;
import com.fasterxml.jackson.databind.introspect.NopAnnotationIntrospector;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;
import java.io.IOException;
import java.lang.annotation.Annotation;
import java.lang.reflect.Array;

/** Writes ids as text with Jackson 2; its service file lets {@code ObjectMapper.findAndRegisterModules()} find it. */
public class KeymillJackson2 extends SimpleModule {
    private static final long serialVersionUID = 1;

    /** Registered with a mapper. */
    public KeymillJackson2() {
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
        public Object findSerializer(Annotated annotated) {
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
        public Object findContentSerializer(Annotated annotated) {
            // The annotations first: the class of an array has no type here.
            return Ids.are(annotations(annotated)) && annotated.getType().isContainerType() && Ids.isNumber(annotated.getType().getContentType().getRawClass()) ? ToStringSerializer.class : null;
        }

        private static Iterable<Annotation> annotations(Annotated annotated) {
            return annotated instanceof AnnotatedMember ? ((AnnotatedMember) annotated).getAllAnnotations().annotations() : java.util.Collections.emptyList();
        }
    }

    /** An array of primitives, for whose elements Jackson asks no serializer. */
    private static final class Numbers extends JsonSerializer<Object> {
        @Override
        public void serialize(Object array, JsonGenerator out, SerializerProvider context) throws IOException {
            out.writeStartArray();
            for (int i = 0; i < Array.getLength(array); i++) {
                out.writeString(Array.get(array, i).toString());
            }
            out.writeEndArray();
        }
    }

    /** What only its value tells: a number, or something else. */
    private static final class Anything extends JsonSerializer<Object> {
        @Override
        public void serialize(Object value, JsonGenerator out, SerializerProvider context) throws IOException {
            if (Ids.isNumber(value.getClass())) {
                out.writeString(value.toString());
            } else {
                context.defaultSerializeValue(value, out);
            }
        }
    }
}
