package io.keymill.json;

import java.lang.annotation.Annotation;
import com.fasterxml.jackson.databind.introspect.Annotated;
import com.fasterxml.jackson.databind.introspect.AnnotatedMember;
import com.fasterxml.jackson.databind.introspect.NopAnnotationIntrospector;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;

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
            return Ids.isNumber(annotated.getRawType()) && Ids.are(annotations(annotated)) ? ToStringSerializer.class : null;
        }

        @Override
        public Object findContentSerializer(Annotated annotated) {
            return annotated.getType().isContainerType() && Ids.isNumber(annotated.getType().getContentType().getRawClass()) && Ids.are(annotations(annotated)) ? ToStringSerializer.class : null;
        }

        private static Iterable<Annotation> annotations(Annotated annotated) {
            return annotated instanceof AnnotatedMember ? ((AnnotatedMember) annotated).getAllAnnotations().annotations() : java.util.Collections.emptyList();
        }
    }
}
