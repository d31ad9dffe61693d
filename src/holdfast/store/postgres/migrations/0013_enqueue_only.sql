-- Version 13: whoever may use the schema may call holdfast.enqueue(), and needs no right on any table for it.

ALTER FUNCTION holdfast.enqueue(
    text, jsonb, text, integer, interval, timestamptz, integer, double precision, text, text, text[], jsonb
) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
