/*
 * Live files as Python hands them over: columns of what the log has about them.
 */
package cm_delta_dagster;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.UTF8String;

/** Files of blocks, in order. */
final class Places {

    private Block[] blocks = new Block[16];
    private int[] rows = new int[16];
    private int size;

    void add(Block block, int row) {
        if (size == rows.length) {
            Block[] moreBlocks = new Block[2 * size];
            System.arraycopy(blocks, 0, moreBlocks, 0, size);
            blocks = moreBlocks;
            rows = Arrays.copyOf(rows, 2 * size);
        }
        blocks[size] = block;
        rows[size++] = row;
    }

    int size() {
        return size;
    }

    Block block(int i) {
        return blocks[i];
    }

    int row(int i) {
        return rows[i];
    }
}

/** A column of values, as hand_over.py packs it. */
final class Column {

    final int length;
    final char kind;
    final byte[] isNull;
    long[] longs;
    double[] doubles;
    UTF8String[] texts;
    BigDecimal[] numbers;

    Column(byte[] packed) throws IOException {
        DataInputStream input = new DataInputStream(new InflaterInputStream(new ByteArrayInputStream(packed)));
        kind = (char) input.readByte();
        length = input.readInt();
        isNull = new byte[length];
        input.readFully(isNull);
        if (kind == 'l') {
            longs = new long[length];
            buffer(input, 8 * length).asLongBuffer().get(longs);
        } else if (kind == 'd') {
            doubles = new double[length];
            buffer(input, 8 * length).asDoubleBuffer().get(doubles);
        } else {
            readTexts(input);
        }
        input.close();
    }

    private void readTexts(DataInputStream input) throws IOException {
        int[] offsets = new int[length + 1];
        buffer(input, 4 * length + 4).asIntBuffer().get(offsets);
        byte[] content = new byte[offsets[length]];
        input.readFully(content);
        texts = new UTF8String[length];
        numbers = kind == 'n' ? new BigDecimal[length] : null;
        for (int i = 0; i < length; i++) {
            if (isNull[i] == 0) {
                texts[i] = UTF8String.fromBytes(Arrays.copyOfRange(content, offsets[i], offsets[i + 1]));
                if (kind == 'n') {
                    numbers[i] = new BigDecimal(texts[i].toString());
                }
            }
        }
    }

    private static ByteBuffer buffer(DataInputStream input, int size) throws IOException {
        byte[] bytes = new byte[size];
        input.readFully(bytes);
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** The value as Spark's rows have it; a number of 64 bits for no type. */
    Object value(int row, DataType type) {
        if (isNull[row] != 0) {
            return null;
        }
        if (kind == 'l') {
            return integer(longs[row], type);
        }
        if (kind == 'd') {
            return type instanceof FloatType
                ? (Object) Float.valueOf((float) doubles[row]) : (Object) Double.valueOf(doubles[row]);
        }
        if (kind == 'n') {
            DecimalType decimal = (DecimalType) type;
            return Decimal.apply(numbers[row], decimal.precision(), decimal.scale());
        }
        return kind == 'b' ? (Object) texts[row].getBytes() : (Object) texts[row];
    }

    private static Object integer(long value, DataType type) {
        if (type instanceof IntegerType || type instanceof DateType || type instanceof YearMonthIntervalType) {
            return Integer.valueOf((int) value);
        }
        if (type instanceof ShortType) {
            return Short.valueOf((short) value);
        }
        if (type instanceof ByteType) {
            return Byte.valueOf((byte) value);
        }
        if (type instanceof BooleanType) {
            return Boolean.valueOf(value != 0);
        }
        return Long.valueOf(value);
    }

    /** A negative number, zero or a positive number, as the value is less than, equal to or greater than the literal. */
    int compare(int row, Object literal) {
        if (kind == 'l') {
            return Long.compare(longs[row], ((Long) literal).longValue());
        }
        if (kind == 'd') {
            double other = ((Double) literal).doubleValue();
            return doubles[row] < other ? -1 : doubles[row] > other ? 1 : 0;
        }
        return kind == 'n' ? numbers[row].compareTo((BigDecimal) literal) : texts[row].binaryCompare((UTF8String) literal);
    }

    boolean has(int row) {
        return isNull[row] == 0;
    }
}

/** Live files that are handed over together. Columns of statistics are unpacked when a filter needs them. */
final class Block {

    private static final int FIXED = 7;

    final int numFiles;
    final long[] sizes;
    final long[] times;
    final long[] hasVector;
    final long[] tupleOfFile;
    final long[] verified;
    private final UTF8String[] paths;
    private final byte[][] packed;
    private final int numPartitions;
    private final SoftReference[] unpacked;
    private SoftReference statuses;
    private InternalRow[] tuples;

    Block(byte[] content) throws IOException {
        DataInputStream input = new DataInputStream(new ByteArrayInputStream(content));
        numPartitions = input.readInt();
        packed = new byte[input.readInt()][];
        for (int c = 0; c < packed.length; c++) {
            packed[c] = new byte[input.readInt()];
            input.readFully(packed[c]);
        }
        unpacked = new SoftReference[packed.length];
        paths = new Column(packed[0]).texts;
        numFiles = paths.length;
        sizes = new Column(packed[1]).longs;
        times = new Column(packed[2]).longs;
        hasVector = new Column(packed[3]).longs;
        tupleOfFile = new Column(packed[4]).longs;
        verified = new long[numFiles];
        packed[0] = null;
    }

    String path(int row) {
        return paths[row].toString();
    }

    /** What Spark gets of each file that it asked for before; null for others. */
    synchronized FileStatusWithMetadata[] statuses() {
        FileStatusWithMetadata[] cached = statuses == null ? null : (FileStatusWithMetadata[]) statuses.get();
        if (cached == null) {
            cached = new FileStatusWithMetadata[numFiles];
            statuses = new SoftReference(cached);
        }
        return cached;
    }

    /** The file with that length as Spark takes it. */
    FileStatusWithMetadata status(FileStatusWithMetadata[] known, int row, long length) {
        FileStatusWithMetadata withMetadata = known[row];
        if (withMetadata == null || withMetadata.getLen() != length) {
            FileStatus status = new FileStatus(length, false, 1, 128L << 20, times[row], hadoopPath(path(row)));
            withMetadata = new FileStatusWithMetadata(status, noMetadata());
            known[row] = withMetadata;
        }
        return withMetadata;
    }

    synchronized Column column(int number) {
        Column column = unpacked[number] == null ? null : (Column) unpacked[number].get();
        if (column == null) {
            try {
                column = new Column(packed[number]);
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
            unpacked[number] = new SoftReference(column);
        }
        return column;
    }

    /** Base row ids for 1, commit versions for 2. */
    Column rowIds(int which) {
        return column(FIXED - 3 + which);
    }

    /** 0: lower bounds, 1: upper bounds, 2: one for files without a null, and two for files of nulls only. */
    Column statistics(int number, int which) {
        return column(FIXED + numPartitions + 3 * number + which);
    }

    synchronized InternalRow[] tuples(StructType schema, int width) {
        if (tuples == null) {
            int length = 0;
            for (int i = 0; i < numFiles; i++) {
                length = Math.max(length, (int) tupleOfFile[i] + 1);
            }
            InternalRow[] rows = new InternalRow[length];
            for (int t = 0; t < length; t++) {
                Object[] values = new Object[width];
                for (int p = 0; p < width; p++) {
                    values[p] = column(FIXED + p).value(t, schema.fields()[p].dataType());
                }
                rows[t] = new GenericInternalRow(values);
            }
            tuples = rows;
        }
        return tuples;
    }

    void countDirectories(Map live) {
        for (int i = 0; i < numFiles; i++) {
            String name = path(i);
            String directory = name.substring(0, name.lastIndexOf('/'));
            int[] count = (int[]) live.get(directory);
            if (count == null) {
                count = new int[1];
                live.put(directory, count);
            }
            count[0]++;
        }
    }

    /** Without an authority Hadoop's own paths have one slash, as in {@code file:/a}, and so has {@code _metadata.file_path}. */
    static Path hadoopPath(String name) {
        int scheme = name.indexOf("://");
        return scheme < 0 || !name.startsWith(":///", scheme)
            ? new Path(name) : new Path(name.substring(0, scheme), null, name.substring(scheme + 3));
    }

    private static scala.collection.immutable.Map noMetadata() {
        return (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
    }
}
