package io.keymill.json;

import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.type.TypeFactory;
import io.swagger.v3.core.converter.AnnotatedType;
import io.swagger.v3.core.converter.ModelConverter;
import io.swagger.v3.core.converter.ModelConverterContext;
import io.swagger.v3.oas.models.media.Schema;
import java.lang.annotation.Annotation;
import java.lang.reflect.Type;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

/** Ids are strings in OpenAPI, as they are in JSON; its service file lets swagger-core, which springdoc uses, find it. */
public class KeymillOpenApi implements ModelConverter {
    /** Made by swagger-core. */
    public KeymillOpenApi() {}

    @Override
    @SuppressWarnings("rawtypes") // as swagger-core declares it
    public Schema resolve(AnnotatedType annotated, ModelConverterContext context, Iterator<ModelConverter> others) {
        if (!others.hasNext()) {
            return null;
        }
        Annotation[] annotations = annotated.getCtxAnnotations();
        Type before = annotated.getType();
        if (annotations == null || before == null || !Ids.are(Arrays.asList(annotations))) {
            return others.next().resolve(annotated, context, others);
        }
        // The field's own @Schema, its constraints and its name still count.
        annotated.setType(asText(TypeFactory.defaultInstance().constructType(before)));
        try {
            return others.next().resolve(annotated, context, others);
        } finally {
            annotated.setType(before);
        }
    }

    /** As the serializers write it. */
    private static JavaType asText(JavaType type) {
        TypeFactory types = TypeFactory.defaultInstance();
        if (Ids.isNumber(type.getRawClass())) {
            return types.constructType(String.class);
        } else if (!type.isContainerType() || !Ids.isNumber(type.getContentType().getRawClass())) {
            return type;
        } else if (type.isMapLikeType()) {
            return types.constructMapType(java.util.Map.class, type.getKeyType(), types.constructType(String.class));
        }
        return types.constructCollectionType(List.class, String.class);
    }
}
