-- Another role plants its own objects under every name that the server's own have. `planted.schema` is where, `planted.victim` the
-- login that is watched. Each object reports through `public.hit`, which a rollback does not undo.

SET search_path = pg_catalog;

DO $do$
DECLARE
  place text := current_setting('planted.schema');
  one record;
  number int := 0;
  made text;
BEGIN
  -- Functions: the arguments of the server's own, and texts and numbers where those take anything. As a plain function also what is an
  -- aggregate.
  FOR one IN
    SELECT p.proname AS name, coalesce((SELECT string_agg(format_type(u.type, NULL), ', ' ORDER BY u.at)
        FROM unnest(p.proargtypes) WITH ORDINALITY u(type, at)), '') AS takes,
      CASE WHEN r.typtype = 'p' THEN 'text' ELSE format_type(r.oid, NULL) END AS gives, p.proretset AS is_set
    FROM pg_proc p JOIN pg_type r ON r.oid = p.prorettype
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND 2281 <> ALL (p.proargtypes) AND 2275 <> ALL (p.proargtypes)
    UNION
    SELECT DISTINCT p.proname, takes, 'text', false FROM pg_proc p
      CROSS JOIN unnest('{text,bigint,numeric,"text, text","text, text, text","bigint, text"}'::text[]) takes
    WHERE p.pronamespace = 'pg_catalog'::regnamespace
      AND EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p' AND t.typname ~ '^any')
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', place, one.name, one.takes,
        CASE WHEN one.is_set THEN 'SETOF' ELSE '' END, one.gives,
        format('BEGIN PERFORM public.hit(%L); %s END', format('function %s(%s)', one.name, one.takes),
          CASE WHEN one.is_set THEN 'RETURN;' ELSE 'RETURN NULL;' END));
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;

  -- Operators: the arguments of the server's own.
  FOR one IN
    SELECT DISTINCT oprname AS name, CASE WHEN oprleft = 0 THEN NULL ELSE format_type(oprleft, NULL) END AS l,
      format_type(oprright, NULL) AS r, format_type(oprresult, NULL) AS gives
    FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
  LOOP
    BEGIN
      number := number + 1;
      EXECUTE format('CREATE FUNCTION %I.planted_%s(%s) RETURNS %s LANGUAGE plpgsql AS %L', place, number,
        concat_ws(', ', one.l, one.r), one.gives,
        format('BEGIN PERFORM public.hit(%L); RETURN NULL; END', format('operator %s %s %s', one.l, one.name, one.r)));
      EXECUTE format('CREATE OPERATOR %I.%s (%s RIGHTARG = %s, FUNCTION = %I.planted_%s)', place, one.name,
        coalesce(format('LEFTARG = %s,', one.l), ''), one.r, place, number);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;

  -- Operators: every other pair of types that a statement could reach.
  FOR one IN
    SELECT format_type(l, NULL) AS l, format_type(r, NULL) AS r,
      (SELECT array_agg(DISTINCT o.oprname::text) FROM pg_operator o WHERE o.oprkind = 'b' AND NOT EXISTS (
        SELECT FROM pg_operator exact WHERE exact.oprname = o.oprname AND exact.oprleft = l AND exact.oprright = r)) AS names
    FROM unnest('{numeric,int2,int4,int8,float8,text,varchar,name,oid,regclass,timestamptz,bytea,bool}'::regtype[]) l,
      unnest('{numeric,int2,int4,int8,float8,text,varchar,name,oid,regclass,timestamptz,bytea,bool}'::regtype[]) r
    WHERE place = 'public'
  LOOP
    number := number + 1;
    EXECUTE format('CREATE FUNCTION %I.planted_%s(%s, %s) RETURNS bool LANGUAGE plpgsql AS %L', place, number, one.l, one.r,
      format('BEGIN PERFORM public.hit(%L); RETURN true; END', format('an operator %s, %s', one.l, one.r)));
    FOREACH made IN ARRAY one.names LOOP
      EXECUTE format('CREATE OPERATOR %I.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %I.planted_%s)', place, made, one.l, one.r, place,
        number);
    END LOOP;
  END LOOP;

  -- Relations of the catalogue, each of whose rows reports.
  FOR one IN
    SELECT c.relname AS name FROM pg_class c
    WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY 1
  LOOP
    BEGIN
      EXECUTE format('CREATE VIEW %I.%I AS SELECT c.*, public.hits(%L) AS planted FROM pg_catalog.%I c', place, one.name,
        format('view %s', one.name), one.name);
      EXECUTE format('GRANT SELECT ON %I.%I TO PUBLIC', place, one.name);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;

  -- Types, each of whose values reports; casts, from and to a type of its own.
  FOR one IN
    SELECT t.typname AS name FROM pg_type t
    WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typcategory <> 'A' ORDER BY 1
  LOOP
    BEGIN
      EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.%I CHECK (public.hits(%L))', place, one.name, one.name,
        format('domain %s', one.name));
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  EXECUTE format('CREATE TYPE %I.planted_type AS ENUM (%L)', place, 'a');
  FOREACH made IN ARRAY '{text,int8,int4,numeric,name,oid,bool}'::text[] LOOP
    EXECUTE format('CREATE FUNCTION %1$I.planted_cast(pg_catalog.%2$I) RETURNS %1$I.planted_type LANGUAGE plpgsql AS %3$L', place, made,
      format('BEGIN PERFORM public.hit(%L); RETURN NULL; END', format('cast of %s', made)));
    EXECUTE format('CREATE CAST (pg_catalog.%2$I AS %1$I.planted_type) WITH FUNCTION %1$I.planted_cast(pg_catalog.%2$I) AS IMPLICIT',
      place, made);
  END LOOP;
END $do$;

SELECT count(*) FROM pg_operator WHERE oprnamespace = current_setting('planted.schema')::regnamespace
UNION ALL SELECT count(*) FROM pg_proc WHERE pronamespace = current_setting('planted.schema')::regnamespace
UNION ALL SELECT count(*) FROM pg_class WHERE relnamespace = current_setting('planted.schema')::regnamespace
UNION ALL SELECT count(*) FROM pg_type WHERE typnamespace = current_setting('planted.schema')::regnamespace AND typtype = 'd';
