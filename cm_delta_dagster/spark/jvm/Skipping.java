/*
 * Which files hold no row that a filter selects, by the bounds of their columns.
 */
package cm_delta_dagster;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/** Finds files of which no row can make a filter true. */
final class Skipping {

    private final Block block;
    private final Map statistics;

    Skipping(Block block, Map statistics) {
        this.block = block;
        this.statistics = statistics;
    }

    /** For each file, whether it is proven that no row makes the expression, or its negation, true. */
    boolean[] excluded(Expression expression, boolean negated) {
        try {
            return proven(expression, negated);
        } catch (RuntimeException error) {
            return new boolean[block.numFiles];
        }
    }

    private boolean[] proven(Expression expression, boolean negated) {
        if (expression instanceof Not) {
            return excluded(child(expression, 0), !negated);
        }
        if (expression instanceof And || expression instanceof Or) {
            boolean[] first = excluded(child(expression, 0), negated);
            boolean[] second = excluded(child(expression, 1), negated);
            return (expression instanceof And) != negated ? or(first, second) : and(first, second);
        }
        if (expression instanceof IsNull || expression instanceof IsNotNull) {
            Bounds bounds = bounds(child(expression, 0));
            return bounds == null ? nothing() : bounds.nulls((expression instanceof IsNull) != negated);
        }
        if (expression instanceof In || expression instanceof InSet) {
            return negated ? nothing() : listed(expression);
        }
        if (expression instanceof StartsWith) {
            Bounds bounds = bounds(child(expression, 0));
            Expression prefix = child(expression, 1);
            boolean known = bounds != null && bounds.kind() == 's' && prefix instanceof Literal && !negated;
            return known ? bounds.withoutPrefix((UTF8String) ((Literal) prefix).value()) : nothing();
        }
        String operator = operator(expression);
        if (operator == null) {
            return nothing();
        }
        Expression left = child(expression, 0);
        Expression right = child(expression, 1);
        boolean isMirrored = left instanceof Literal;
        Expression column = isMirrored ? right : left;
        Expression literal = isMirrored ? left : right;
        if (!(literal instanceof Literal) || !column.dataType().equals(literal.dataType())) {
            return nothing();
        }
        Object value = ((Literal) literal).value();
        if (expression instanceof EqualNullSafe && (negated || value == null)) {
            // A null satisfies the negation for every value but null.
            Bounds bounds = value == null ? bounds(column) : null;
            return bounds == null ? nothing() : bounds.nulls(!negated);
        }
        Bounds bounds = bounds(column);
        operator = isMirrored ? mirrored(operator) : operator;
        return bounds == null || value == null ? nothing() : bounds.outside(negated ? opposite(operator) : operator, value);
    }

    private boolean[] listed(Expression expression) {
        Bounds bounds = bounds(child(expression, 0));
        if (bounds == null) {
            return nothing();
        }
        List values = new ArrayList();
        if (expression instanceof InSet) {
            Iterator iterator = scala.jdk.javaapi.CollectionConverters.asJava(((InSet) expression).hset()).iterator();
            while (iterator.hasNext()) {
                values.add(iterator.next());
            }
        } else {
            Iterator iterator = scala.jdk.javaapi.CollectionConverters.asJava(((In) expression).list()).iterator();
            while (iterator.hasNext()) {
                values.add(((Literal) iterator.next()).value());
            }
        }
        return bounds.withoutAny(values);
    }

    private Bounds bounds(Expression expression) {
        Expression column = expression;
        while (column instanceof Cast && isInteger(column.dataType()) && isInteger(child(column, 0).dataType())
                && column.dataType().defaultSize() >= child(column, 0).dataType().defaultSize()) {
            column = child(column, 0);
        }
        String name = name(column);
        Integer number = name == null ? null : (Integer) statistics.get(name);
        return number == null ? null : new Bounds(block, number.intValue());
    }

    /** The path of a column, or of a field of structs, as Python spells it. */
    private static String name(Expression expression) {
        if (expression instanceof GetStructField) {
            Expression parent = child(expression, 0);
            String above = name(parent);
            int position = ((GetStructField) expression).ordinal();
            return above == null ? null : above + "\u0000" + ((StructType) parent.dataType()).fields()[position].name();
        }
        if (!(expression instanceof AttributeReference)) {
            return null;
        }
        AttributeReference attribute = (AttributeReference) expression;
        // A column of _metadata may have the name of a column of the table.
        return attribute.metadata().json().contains("_metadata_col") ? null : attribute.name();
    }

    private boolean[] nothing() {
        return new boolean[block.numFiles];
    }

    private static boolean[] and(boolean[] first, boolean[] second) {
        for (int i = 0; i < first.length; i++) {
            first[i] &= second[i];
        }
        return first;
    }

    private static Expression child(Expression expression, int position) {
        return (Expression) ((Seq) expression.children()).apply(position);
    }

    private static boolean isInteger(DataType type) {
        return type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType || type instanceof LongType;
    }

    private static String operator(Expression expression) {
        return expression instanceof EqualTo || expression instanceof EqualNullSafe ? "="
            : expression instanceof LessThan ? "<"
            : expression instanceof LessThanOrEqual ? "<="
            : expression instanceof GreaterThan ? ">"
            : expression instanceof GreaterThanOrEqual ? ">=" : null;
    }

    private static String mirrored(String operator) {
        return operator.startsWith("<") ? operator.replace('<', '>') : operator.replace('>', '<');
    }

    private static String opposite(String operator) {
        return operator.equals("=") ? "!=" : operator.equals("<") ? ">=" : operator.equals("<=") ? ">"
            : operator.equals(">") ? "<=" : "<";
    }

    static boolean[] or(boolean[] first, boolean[] second) {
        for (int i = 0; i < first.length; i++) {
            first[i] |= second[i];
        }
        return first;
    }
}

/** Bounds of one column in the files of a block. They need not be values of the files; either may be unknown. */
final class Bounds {

    private final Column lower;
    private final Column upper;
    private final Column nulls;

    Bounds(Block block, int number) {
        lower = block.statistics(number, 0);
        upper = block.statistics(number, 1);
        nulls = block.statistics(number, 2);
    }

    char kind() {
        return lower.kind;
    }

    /** Files without a null if it is wanted, otherwise files of nulls only. */
    boolean[] nulls(boolean isNullWanted) {
        boolean[] excluded = new boolean[nulls.length];
        for (int i = 0; i < excluded.length; i++) {
            excluded[i] = (nulls.longs[i] & (isNullWanted ? 1 : 2)) != 0;
        }
        return excluded;
    }

    boolean[] outside(String operator, Object literal) {
        boolean[] excluded = nulls(false);
        Object value = converted(literal);
        boolean isFloating = lower.kind == 'd';
        // NaN is greater than every number, and some writers leave it out of the bounds.
        boolean isUnsafe = isFloating && (operator.startsWith(">") || operator.equals("!=") || isNaN(value));
        for (int i = 0; value != null && !isUnsafe && i < excluded.length; i++) {
            excluded[i] |= isOutside(i, operator, value);
        }
        return excluded;
    }

    private boolean isOutside(int i, String operator, Object value) {
        if (operator.equals("=")) {
            return lower.has(i) && lower.compare(i, value) > 0 || upper.has(i) && upper.compare(i, value) < 0;
        }
        if (operator.equals("!=")) {
            return lower.has(i) && upper.has(i) && lower.compare(i, value) == 0 && upper.compare(i, value) == 0;
        }
        if (operator.startsWith("<")) {
            return lower.has(i) && lower.compare(i, value) >= (operator.equals("<") ? 0 : 1);
        }
        return upper.has(i) && upper.compare(i, value) <= (operator.equals(">") ? 0 : -1);
    }

    boolean[] withoutAny(List literals) {
        List values = new ArrayList();
        for (int v = 0; v < literals.size(); v++) {
            if (literals.get(v) != null) {
                Object value = converted(literals.get(v));
                if (value == null || isNaN(value)) {
                    return nulls(false);
                }
                values.add(value);
            }
        }
        Object[] sorted = values.toArray();
        Arrays.sort(sorted);
        boolean[] excluded = nulls(false);
        for (int i = 0; i < excluded.length; i++) {
            // The first value that is not below the lower bound.
            int from = 0;
            int to = sorted.length;
            while (lower.has(i) && from < to) {
                int middle = (from + to) >>> 1;
                if (lower.compare(i, sorted[middle]) > 0) {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            excluded[i] |= from == sorted.length || upper.has(i) && upper.compare(i, sorted[from]) < 0;
        }
        return excluded;
    }

    boolean[] withoutPrefix(UTF8String prefix) {
        boolean[] excluded = nulls(false);
        for (int i = 0; i < excluded.length; i++) {
            // A greater lower bound that does not begin with the prefix is greater than all texts that do.
            excluded[i] |= lower.has(i) && lower.compare(i, prefix) > 0 && !lower.texts[i].startsWith(prefix)
                || upper.has(i) && upper.compare(i, prefix) < 0;
        }
        return excluded;
    }

    /** The value of a literal as bounds are compared with it; null if it is of another kind. */
    private Object converted(Object value) {
        if (lower.kind == 'l') {
            boolean isInteger = value instanceof Long || value instanceof Integer || value instanceof Short
                || value instanceof Byte;
            return isInteger ? Long.valueOf(((Number) value).longValue()) : null;
        }
        if (lower.kind == 'd') {
            return value instanceof Double || value instanceof Float ? Double.valueOf(((Number) value).doubleValue()) : null;
        }
        if (lower.kind == 'n') {
            return value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal() : null;
        }
        return value instanceof UTF8String ? value : null;
    }

    private static boolean isNaN(Object value) {
        return value instanceof Double && ((Double) value).isNaN();
    }
}
