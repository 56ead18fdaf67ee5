/*
 * The rows that deletion vectors mark.
 */
package cm_delta_dagster;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.BooleanType$;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.util.collection.BitSet;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;
import scala.collection.immutable.Seq;

/**
 * The deleted rows of files in one set of bits, a range of bits for each file, and the test of a bit in the code that Spark
 * generates: a call of a class that executors have. They get the bits with each task, or many bits once.
 */
public final class DeletedRows {

    private static final long MOST_IN_TASKS = 1L << 25;

    private final long[] first;
    private final long[] lengths;
    private final BitSet bits;
    private SparkContext context;
    private Broadcast sent;

    /** Number of bits of each file, and its bitmap as the protocol stores it, without magic number. */
    DeletedRows(byte[] packedLengths, byte[] bitmaps) throws IOException {
        lengths = new Column(packedLengths).longs;
        first = new long[lengths.length];
        long total = 0;
        for (int i = 0; i < lengths.length; i++) {
            first[i] = total;
            total += lengths[i];
        }
        bits = new BitSet(Math.toIntExact(total));
        DataInputStream input = new DataInputStream(new ByteArrayInputStream(bitmaps));
        for (int i = 0; i < lengths.length; i++) {
            // The number of 32-bit bitmaps, of which positions below two billion need one, and the upper half of its positions.
            if (Long.reverseBytes(input.readLong()) != 0) {
                input.readInt();
                RoaringBitmap positions = new RoaringBitmap();
                positions.deserialize(input);
                PeekableIntIterator iterator = positions.getIntIterator();
                while (iterator.hasNext()) {
                    bits.set((int) first[i] + iterator.next());
                }
            }
        }
    }

    Object range(int which, int file) {
        return Long.valueOf(which == 0 ? first[file] : lengths[file]);
    }

    /** The value of the bit whose number is in a column; an error for a null. */
    public org.apache.spark.sql.Column bit(String number, SparkSession session) {
        Seq none = LiveFileIndex.seq(new Object[0]);
        ObjectType kind = new ObjectType(BitSet.class);
        Expression target = bits.capacity() <= MOST_IN_TASKS
            ? (Expression) new Literal(bits, kind)
            : new Invoke(new Literal(broadcast(session.sparkContext()), new ObjectType(Broadcast.class)), "value", kind,
                none, none, true, false, true);
        Expression position = new AssertNotNull(UnresolvedAttribute.quoted(number), none);
        Seq arguments = LiveFileIndex.seq(new Object[] {position});
        return ExpressionUtils.column(new Invoke(target, "get", BooleanType$.MODULE$, arguments, none, true, false, true));
    }

    private synchronized Broadcast broadcast(SparkContext newContext) {
        if (context != newContext) {
            context = newContext;
            sent = JavaSparkContext.fromSparkContext(newContext).broadcast(bits);
        }
        return sent;
    }
}
