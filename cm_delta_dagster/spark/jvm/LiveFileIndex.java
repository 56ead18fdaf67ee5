/*
 * The live files of one table version as a FileIndex of Spark. Compiled in the JVM of the driver by Janino, which Spark
 * carries; Janino knows neither generics nor lambdas. Executors never see these classes.
 */
package cm_delta_dagster;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.InflaterInputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
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
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.BooleanType$;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.collection.BitSet;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;
import scala.Option;
import scala.collection.immutable.Seq;

public final class LiveFileIndex implements FileIndex {

    private static final int THREADS = 32;
    private static final int LISTED_FILES = 8;
    private static final int LOCAL_FILES = 4096;
    private static final int LISTED_SHARE = 20;
    /** Number of extras that say where the deleted rows of a file are. */
    private static final int DELETED = 2;

    private final String identity;
    private final String root;
    private final Block[] blocks;
    private final boolean withoutVectors;
    private final boolean[] extras;
    private final DeletedRows deleted;
    private final StructType partitionSchema;
    private final int numPartitions;
    private final Map statistics;
    private final SparkSession session;
    private final scala.collection.immutable.Map options;
    private final long sizeInBytes;

    LiveFileIndex(String identity, String root, Block[] blocks, boolean withoutVectors, boolean[] extras, DeletedRows deleted,
            StructType partitionSchema, Map statistics, SparkSession session, scala.collection.immutable.Map options) {
        this.identity = identity;
        this.root = root;
        this.blocks = blocks;
        this.withoutVectors = withoutVectors;
        this.extras = extras;
        this.deleted = deleted;
        this.partitionSchema = partitionSchema;
        this.numPartitions = partitionSchema.length() - count(extras);
        this.statistics = statistics;
        this.session = session;
        this.options = options;
        long total = 0;
        for (int b = 0; b < blocks.length; b++) {
            for (int row = 0; row < blocks[b].numFiles; row++) {
                total += includes(blocks[b], row) ? blocks[b].sizes[row] : 0;
            }
        }
        this.sizeInBytes = total;
    }

    /** What Python calls. One object for each Java process. */
    public static final class Factory {

        /** Fails if Spark's reader has another name for positions of rows. */
        public Factory() {
            if (!"_tmp_metadata_row_index".equals(ParquetFileFormat$.MODULE$.ROW_INDEX_TEMPORARY_COLUMN_NAME())) {
                throw new UnsupportedOperationException("Spark's Parquet reader has changed.");
            }
        }

        /** Live files and what the log has about them, as hand_over.py packs them. */
        public Object block(byte[] packed) throws IOException {
            return new Block(packed);
        }

        /** The deleted rows of files, in the order of a relation. */
        public DeletedRows deletedRows(byte[] lengths, byte[] bitmaps) throws IOException {
            return new DeletedRows(lengths, bitmaps);
        }

        public Object relation(String identity, String root, List blocks, boolean withoutVectors, byte[] extras,
                DeletedRows deleted, String partitionSchema, String dataSchema, byte[] statistics, byte[] options, SparkSession session) throws Exception {
            Block[] given = new Block[blocks.size()];
            for (int b = 0; b < given.length; b++) {
                given[b] = (Block) blocks.get(b);
            }
            boolean[] wanted = new boolean[extras.length];
            for (int e = 0; e < extras.length; e++) {
                wanted[e] = extras[e] != 0;
            }
            Map numbers = new HashMap();
            UTF8String[] names = new Column(statistics).texts;
            for (int n = 0; n < names.length; n++) {
                if (names[n] != null) {
                    numbers.put(names[n].toString(), Integer.valueOf(n));
                }
            }
            Map settings = new HashMap();
            UTF8String[] pairs = new Column(options).texts;
            for (int p = 0; p < pairs.length; p += 2) {
                settings.put(pairs[p].toString(), pairs[p + 1].toString());
            }
            scala.collection.immutable.Map scalaOptions =
                (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.from(
                    scala.jdk.javaapi.CollectionConverters.asScala(settings));
            StructType partitions = (StructType) DataType.fromJson(partitionSchema);
            LiveFileIndex index = new LiveFileIndex(
                identity, root, given, withoutVectors, wanted, deleted, partitions, numbers, session, scalaOptions);
            // By reflection, since the type of the last parameter differs between versions of Spark.
            Object relation = HadoopFsRelation.class.getConstructors()[0].newInstance(new Object[] {
                index, partitions, DataType.fromJson(dataSchema), Option.apply(null), new ParquetFileFormat(), scalaOptions,
                session});
            return session.baseRelationToDataFrame((BaseRelation) relation);
        }
    }

    public Seq rootPaths() {
        return seq(new Object[] {hadoopPath(root)});
    }

    public StructType partitionSchema() {
        return partitionSchema;
    }

    public long sizeInBytes() {
        return sizeInBytes;
    }

    public String[] inputFiles() {
        List found = new ArrayList();
        for (int b = 0; b < blocks.length; b++) {
            for (int row = 0; row < blocks[b].numFiles; row++) {
                if (includes(blocks[b], row)) {
                    found.add(hadoopPath(blocks[b].path(row)).toUri().toString());
                }
            }
        }
        return (String[]) found.toArray(new String[0]);
    }

    public void refresh() {
    }

    public Option metadataOpsTimeNs() {
        return Option.apply(null);
    }

    public String toString() {
        return "LiveFileIndex(" + root + ")";
    }

    public boolean equals(Object other) {
        return other instanceof LiveFileIndex && ((LiveFileIndex) other).identity.equals(identity);
    }

    public int hashCode() {
        return identity.hashCode();
    }

    /**
     * Files that may hold a row for which the filters are true, by their partition values. Spark applies data filters again,
     * and relies on the partition filters.
     */
    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        BasePredicate[] predicates = predicates(partitionFilters);
        Expression[] filters = expressions(dataFilters);
        Places places = new Places();
        List directories = new ArrayList();
        long before = 0;
        for (int b = 0; b < blocks.length; b++) {
            Block block = blocks[b];
            InternalRow[] tuples = block.tuples(partitionSchema, numPartitions);
            boolean[] matching = new boolean[tuples.length];
            for (int t = 0; extras.length == 0 && t < tuples.length; t++) {
                matching[t] = holds(predicates, tuples[t]);
            }
            boolean[] excluded = new boolean[block.numFiles];
            for (int f = 0; f < filters.length; f++) {
                excluded = or(excluded, new Skipping(block, statistics).excluded(filters[f], false));
            }
            for (int row = 0; row < block.numFiles; row++) {
                if (excluded[row] || !includes(block, row)) {
                    continue;
                }
                int tuple = (int) block.tupleOfFile[row];
                InternalRow directory = tuples[tuple];
                if (extras.length > 0) {
                    directory = withExtras(directory, block, row, before + row);
                    if (!holds(predicates, directory)) {
                        continue;
                    }
                } else if (!matching[tuple]) {
                    continue;
                }
                places.add(block, row);
                directories.add(directory);
            }
            before += block.numFiles;
        }
        long[] lengths = lengths(places);
        Map byDirectory = new LinkedHashMap();
        InternalRow last = null;
        List files = null;
        Block block = null;
        FileStatusWithMetadata[] statuses = null;
        for (int i = 0; i < lengths.length; i++) {
            if (places.block(i) != block) {
                block = places.block(i);
                statuses = block.statuses();
            }
            InternalRow directory = (InternalRow) directories.get(i);
            if (directory != last) {
                files = (List) byDirectory.get(directory);
                if (files == null) {
                    files = new ArrayList();
                    byDirectory.put(directory, files);
                }
                last = directory;
            }
            files.add(block.status(statuses, places.row(i), lengths[i]));
        }
        Object[] found = new Object[byDirectory.size()];
        Iterator entries = byDirectory.entrySet().iterator();
        for (int d = 0; d < found.length; d++) {
            Map.Entry entry = (Map.Entry) entries.next();
            found[d] = new PartitionDirectory((InternalRow) entry.getKey(), seq(((List) entry.getValue()).toArray()));
        }
        return seq(found);
    }

    private boolean includes(Block block, int row) {
        return !withoutVectors || block.hasVector[row] == 0;
    }

    private InternalRow withExtras(InternalRow tuple, Block block, int row, long number) {
        Object[] values = new Object[partitionSchema.length()];
        for (int p = 0; p < numPartitions; p++) {
            values[p] = ((GenericInternalRow) tuple).genericGet(p);
        }
        int next = numPartitions;
        for (int e = 0; e < extras.length; e++) {
            if (extras[e]) {
                values[next++] = e < DELETED ? deleted.range(e, (int) number) : block.rowIds(e - DELETED + 1).value(row, null);
            }
        }
        return new GenericInternalRow(values);
    }

    private static boolean holds(BasePredicate[] predicates, InternalRow row) {
        for (int p = 0; p < predicates.length; p++) {
            if (!predicates[p].eval(row)) {
                return false;
            }
        }
        return true;
    }

    private BasePredicate[] predicates(Seq filters) {
        Expression[] given = expressions(filters);
        BasePredicate[] found = new BasePredicate[given.length];
        for (int f = 0; f < given.length; f++) {
            found[f] = Predicate$.MODULE$.createInterpreted(bound(given[f]));
            found[f].initialize(0);
        }
        return found;
    }

    private Expression bound(Expression expression) {
        if (expression instanceof AttributeReference) {
            int position = partitionSchema.fieldIndex(((AttributeReference) expression).name());
            return new BoundReference(position, partitionSchema.fields()[position].dataType(), true);
        }
        Object[] children = scala.jdk.javaapi.CollectionConverters.asJava((Seq) expression.children()).toArray();
        for (int c = 0; c < children.length; c++) {
            children[c] = bound((Expression) children[c]);
        }
        return children.length == 0 ? expression : (Expression) expression.withNewChildren(seq(children));
    }

    /**
     * The length of each file in storage. Spark reads only the row groups that begin within the length that it is given, so
     * that a length that is too small would lose rows.
     */
    private long[] lengths(Places places) {
        long[] lengths = new long[places.size()];
        Map systems = new HashMap();
        Map byPlace = new LinkedHashMap();
        Configuration configuration = null;
        try {
            for (int i = 0; i < lengths.length; i++) {
                lengths[i] = places.block(i).verified[places.row(i)];
                if (lengths[i] != 0) {
                    continue;
                }
                String name = places.block(i).path(places.row(i));
                String place = place(name);
                List some = (List) byPlace.get(place);
                if (some == null) {
                    configuration = configuration == null
                        ? session.sessionState().newHadoopConfWithOptions(options) : configuration;
                    systems.put(place, hadoopPath(name).getFileSystem(configuration));
                    some = new ArrayList();
                    byPlace.put(place, some);
                }
                some.add(Integer.valueOf(i));
            }
            Iterator entries = byPlace.entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry entry = (Map.Entry) entries.next();
                FileSystem system = (FileSystem) systems.get(entry.getKey());
                List wanted = (List) entry.getValue();
                if (system instanceof LocalFileSystem || system instanceof RawLocalFileSystem) {
                    checkLocal(system, wanted, places, lengths);
                } else {
                    verify(system, wanted, places, lengths);
                }
            }
        } catch (IOException error) {
            throw unreadable(error);
        } finally {
            closeUncached(systems, configuration);
        }
        return lengths;
    }

    /** The error as PySpark shows it in one line: it converts exceptions of Spark's own classes only. */
    private static RuntimeException unreadable(IOException error) {
        return new SparkRuntimeException("USER_RAISED_EXCEPTION", new scala.collection.immutable.Map$Map1("errorMessage", String.valueOf(error.getMessage())), error,
            new QueryContext[0], "");
    }

    /** Asks for the length of each file, in every plan, since that is fast; many files by several threads. */
    private static void checkLocal(FileSystem system, List wanted, Places places, long[] lengths) throws IOException {
        int processors = Runtime.getRuntime().availableProcessors();
        int size = Math.max(LOCAL_FILES, (wanted.size() + processors - 1) / processors);
        List tasks = new ArrayList();
        for (int first = 0; first < wanted.size(); first += size) {
            List part = wanted.subList(first, Math.min(first + size, wanted.size()));
            tasks.add(new LocalCheck(system, part, places, lengths));
        }
        if (tasks.size() == 1) {
            ((LocalCheck) tasks.get(0)).call();
        } else {
            run(tasks);
        }
    }

    private static final class LocalCheck implements Callable {

        private final FileSystem system;
        private final List wanted;
        private final Places places;
        private final long[] lengths;

        LocalCheck(FileSystem system, List wanted, Places places, long[] lengths) {
            this.system = system;
            this.wanted = wanted;
            this.places = places;
            this.lengths = lengths;
        }

        public Object call() throws IOException {
            for (int w = 0; w < wanted.size(); w++) {
                int i = ((Integer) wanted.get(w)).intValue();
                String name = places.block(i).path(places.row(i));
                lengths[i] = checked(system, name, localLength(name), places.block(i).sizes[places.row(i)]);
            }
            return null;
        }
    }

    private static long localLength(String name) {
        int scheme = name.indexOf("://");
        return new File(scheme < 0 ? name : name.substring(name.indexOf('/', scheme + 3))).length();
    }

    /** The length; an error if the file is missing, or has another length than the log says and no end of a Parquet file. */
    private static long checked(FileSystem system, String name, long length, long size) throws IOException {
        if (length == 0 && !system.exists(hadoopPath(name))) {
            throw new FileNotFoundException("The data file " + name + " is missing. It is part of the table's version; restore"
                + " it, or read a version that does not need it.");
        }
        if (length != size && !endsAsParquet(system, hadoopPath(name), length)) {
            throw new IOException("The data file " + name + " is damaged: the log says " + size + " bytes, storage has " + length
                + ", and it has no readable Parquet footer. Its rows are part of this version, so nothing is read. Restore the"
                + " file, or read a version that does not need it.");
        }
        return length;
    }

    private static boolean endsAsParquet(FileSystem system, Path path, long length) throws IOException {
        byte[] end = new byte[4];
        if (length < 12) {
            return false;
        }
        FSDataInputStream input = system.open(path);
        try {
            input.readFully(length - 4, end);
        } finally {
            input.close();
        }
        return end[0] == 'P' && end[1] == 'A' && end[2] == 'R' && (end[3] == '1' || end[3] == 'E');
    }

    /** One request for each directory of which many files are read, otherwise one for each file; once for each file. */
    private void verify(FileSystem system, List wanted, Places places, long[] lengths) throws IOException {
        Map live = new HashMap();
        for (int b = 0; b < blocks.length; b++) {
            blocks[b].countDirectories(live);
        }
        Map directories = new LinkedHashMap();
        for (int w = 0; w < wanted.size(); w++) {
            int i = ((Integer) wanted.get(w)).intValue();
            String name = places.block(i).path(places.row(i));
            String directory = name.substring(0, name.lastIndexOf('/'));
            Map files = (Map) directories.get(directory);
            if (files == null) {
                files = new HashMap();
                directories.put(directory, files);
            }
            files.put(name.substring(directory.length() + 1), wanted.get(w));
        }
        List tasks = new ArrayList();
        Iterator entries = directories.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            Map files = (Map) entry.getValue();
            int of = ((int[]) live.get(entry.getKey()))[0];
            if (files.size() >= LISTED_FILES && files.size() * LISTED_SHARE >= of) {
                tasks.add(new Request(system, (String) entry.getKey(), files, true, lengths));
            } else {
                Iterator each = files.entrySet().iterator();
                while (each.hasNext()) {
                    Map.Entry file = (Map.Entry) each.next();
                    Map one = new HashMap();
                    one.put(file.getKey(), file.getValue());
                    tasks.add(new Request(system, (String) entry.getKey(), one, false, lengths));
                }
            }
        }
        run(tasks);
        for (int w = 0; w < wanted.size(); w++) {
            int i = ((Integer) wanted.get(w)).intValue();
            Block block = places.block(i);
            int row = places.row(i);
            block.verified[row] = checked(system, block.path(row), lengths[i], block.sizes[row]);
        }
    }

    private static void run(List tasks) throws IOException {
        ExecutorService pool = Executors.newFixedThreadPool(Math.min(THREADS, tasks.size()));
        try {
            Iterator futures = pool.invokeAll(tasks).iterator();
            while (futures.hasNext()) {
                ((Future) futures.next()).get();
            }
        } catch (ExecutionException error) {
            if (error.getCause() instanceof IOException) {
                throw (IOException) error.getCause();
            }
            throw new RuntimeException(error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RuntimeException(error);
        } finally {
            pool.shutdownNow();
        }
    }

    /** Takes the lengths of files of one directory from storage. */
    private static final class Request implements Callable {

        private final FileSystem system;
        private final String directory;
        private final Map files;
        private final boolean isListing;
        private final long[] lengths;

        Request(FileSystem system, String directory, Map files, boolean isListing, long[] lengths) {
            this.system = system;
            this.directory = directory;
            this.files = files;
            this.isListing = isListing;
            this.lengths = lengths;
        }

        /** The length of a missing file stays zero. */
        public Object call() throws IOException {
            try {
                if (isListing) {
                    list();
                } else {
                    Map.Entry file = (Map.Entry) files.entrySet().iterator().next();
                    Path path = hadoopPath(directory + "/" + file.getKey());
                    lengths[((Integer) file.getValue()).intValue()] = system.getFileStatus(path).getLen();
                }
            } catch (FileNotFoundException error) {
                return null;
            }
            return null;
        }

        private void list() throws IOException {
            int left = files.size();
            RemoteIterator listed = system.listStatusIterator(hadoopPath(directory));
            while (left > 0 && listed.hasNext()) {
                FileStatus status = (FileStatus) listed.next();
                Integer place = (Integer) files.get(status.getPath().getName());
                if (place != null && status.isFile()) {
                    lengths[place.intValue()] = status.getLen();
                    left--;
                }
            }
        }
    }

    private static void closeUncached(Map systems, Configuration configuration) {
        Iterator each = systems.values().iterator();
        while (each.hasNext()) {
            FileSystem system = (FileSystem) each.next();
            if (configuration.getBoolean("fs." + system.getUri().getScheme() + ".impl.disable.cache", false)) {
                try {
                    system.close();
                } catch (IOException error) {
                    // Nothing was written through it.
                }
            }
        }
    }

    /** Without an authority Hadoop's own paths have one slash, as in {@code file:/a}, and so has {@code _metadata.file_path}. */
    static Path hadoopPath(String name) {
        int scheme = name.indexOf("://");
        return scheme < 0 || !name.startsWith(":///", scheme)
            ? new Path(name) : new Path(name.substring(0, scheme), null, name.substring(scheme + 3));
    }

    /** Scheme and authority. */
    private static String place(String name) {
        int scheme = name.indexOf("://");
        return scheme < 0 ? "" : name.substring(0, Math.max(scheme + 3, name.indexOf('/', scheme + 3)));
    }

    private static int count(boolean[] flags) {
        int found = 0;
        for (int f = 0; f < flags.length; f++) {
            found += flags[f] ? 1 : 0;
        }
        return found;
    }

    static boolean[] or(boolean[] one, boolean[] other) {
        for (int i = 0; i < one.length; i++) {
            one[i] |= other[i];
        }
        return one;
    }

    private static Expression[] expressions(Seq filters) {
        Object[] given = scala.jdk.javaapi.CollectionConverters.asJava(filters).toArray();
        Expression[] found = new Expression[given.length];
        System.arraycopy(given, 0, found, 0, given.length);
        return found;
    }

    static Seq seq(Object[] values) {
        return (Seq) scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(values);
    }

    private static scala.collection.immutable.Map noMetadata() {
        return (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
    }

    /** Files of blocks, in order. */
    static final class Places {

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
    static final class Column {

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

    /**
     * The deleted rows of files in one set of bits, a range of bits for each file, and the test of a bit in the code that Spark
     * generates: a call of a class that executors have. They get the bits with each task, or many bits once.
     */
    public static final class DeletedRows {

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
                    PeekableIntIterator each = positions.getIntIterator();
                    while (each.hasNext()) {
                        bits.set((int) first[i] + each.next());
                    }
                }
            }
        }

        Object range(int which, int file) {
            return Long.valueOf(which == 0 ? first[file] : lengths[file]);
        }

        /** The value of the bit whose number is in a column; an error for a null. */
        public org.apache.spark.sql.Column bit(String number, SparkSession session) {
            Seq none = seq(new Object[0]);
            ObjectType kind = new ObjectType(BitSet.class);
            Expression target = bits.capacity() <= MOST_IN_TASKS
                ? (Expression) new Literal(bits, kind)
                : new Invoke(new Literal(broadcast(session.sparkContext()), new ObjectType(Broadcast.class)), "value", kind,
                    none, none, true, false, true);
            Expression position = new AssertNotNull(UnresolvedAttribute.quoted(number), none);
            Seq arguments = seq(new Object[] {position});
            return ExpressionUtils.column(new Invoke(target, "get", BooleanType$.MODULE$, arguments, none, true, false, true));
        }

        private synchronized Broadcast broadcast(SparkContext wanted) {
            if (context != wanted) {
                context = wanted;
                sent = JavaSparkContext.fromSparkContext(wanted).broadcast(bits);
            }
            return sent;
        }
    }

    /** Live files that are handed over together. Columns of statistics are unpacked when a filter needs them. */
    static final class Block {

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

        Block(byte[] given) throws IOException {
            DataInputStream input = new DataInputStream(new ByteArrayInputStream(given));
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
            FileStatusWithMetadata[] found = statuses == null ? null : (FileStatusWithMetadata[]) statuses.get();
            if (found == null) {
                found = new FileStatusWithMetadata[numFiles];
                statuses = new SoftReference(found);
            }
            return found;
        }

        /** The file with that length as Spark takes it. */
        FileStatusWithMetadata status(FileStatusWithMetadata[] known, int row, long length) {
            FileStatusWithMetadata found = known[row];
            if (found == null || found.getLen() != length) {
                FileStatus status = new FileStatus(length, false, 1, 128L << 20, times[row], hadoopPath(path(row)));
                found = new FileStatusWithMetadata(status, noMetadata());
                known[row] = found;
            }
            return found;
        }

        synchronized Column column(int number) {
            Column found = unpacked[number] == null ? null : (Column) unpacked[number].get();
            if (found == null) {
                try {
                    found = new Column(packed[number]);
                } catch (IOException error) {
                    throw new RuntimeException(error);
                }
                unpacked[number] = new SoftReference(found);
            }
            return found;
        }

        /** Base row ids for 1, commit versions for 2. */
        Column rowIds(int which) {
            return column(FIXED - 3 + which);
        }

        /** 0: lower bounds, 1: upper bounds, 2: one for files without a null, two for files of nulls only. */
        Column statistics(int number, int which) {
            return column(FIXED + numPartitions + 3 * number + which);
        }

        synchronized InternalRow[] tuples(StructType schema, int width) {
            if (tuples == null) {
                int length = 0;
                for (int i = 0; i < numFiles; i++) {
                    length = Math.max(length, (int) tupleOfFile[i] + 1);
                }
                InternalRow[] found = new InternalRow[length];
                for (int t = 0; t < length; t++) {
                    Object[] values = new Object[width];
                    for (int p = 0; p < width; p++) {
                        values[p] = column(FIXED + p).value(t, schema.fields()[p].dataType());
                    }
                    found[t] = new GenericInternalRow(values);
                }
                tuples = found;
            }
            return tuples;
        }

        void countDirectories(Map live) {
            for (int i = 0; i < numFiles; i++) {
                String name = path(i);
                String directory = name.substring(0, name.lastIndexOf('/'));
                int[] found = (int[]) live.get(directory);
                if (found == null) {
                    found = new int[1];
                    live.put(directory, found);
                }
                found[0]++;
            }
        }
    }

    /** Finds files of which no row can make a filter true. */
    static final class Skipping {

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
                boolean[] one = excluded(child(expression, 0), negated);
                boolean[] other = excluded(child(expression, 1), negated);
                return (expression instanceof And) != negated ? or(one, other) : and(one, other);
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
                Iterator each = scala.jdk.javaapi.CollectionConverters.asJava(((InSet) expression).hset()).iterator();
                while (each.hasNext()) {
                    values.add(each.next());
                }
            } else {
                Iterator each = scala.jdk.javaapi.CollectionConverters.asJava(((In) expression).list()).iterator();
                while (each.hasNext()) {
                    values.add(((Literal) each.next()).value());
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

        private static boolean[] and(boolean[] one, boolean[] other) {
            for (int i = 0; i < one.length; i++) {
                one[i] &= other[i];
            }
            return one;
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
    }

    /** Bounds of one column in the files of a block. They need not be values of the files; either may be unknown. */
    static final class Bounds {

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
            boolean[] found = new boolean[nulls.length];
            for (int i = 0; i < found.length; i++) {
                found[i] = nulls.longs[i] == (isNullWanted ? 1 : 2);
            }
            return found;
        }

        boolean[] outside(String operator, Object given) {
            boolean[] found = nulls(false);
            Object value = converted(given);
            boolean isFloating = lower.kind == 'd';
            // NaN is greater than every number, and some writers leave it out of the bounds.
            boolean isUnsafe = isFloating && (operator.startsWith(">") || operator.equals("!=") || isNaN(value));
            for (int i = 0; value != null && !isUnsafe && i < found.length; i++) {
                found[i] |= isOutside(i, operator, value);
            }
            return found;
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

        boolean[] withoutAny(List given) {
            List values = new ArrayList();
            for (int v = 0; v < given.size(); v++) {
                if (given.get(v) != null) {
                    Object value = converted(given.get(v));
                    if (value == null || isNaN(value)) {
                        return nulls(false);
                    }
                    values.add(value);
                }
            }
            Object[] sorted = values.toArray();
            Arrays.sort(sorted);
            boolean[] found = nulls(false);
            for (int i = 0; i < found.length; i++) {
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
                found[i] |= from == sorted.length || upper.has(i) && upper.compare(i, sorted[from]) < 0;
            }
            return found;
        }

        boolean[] withoutPrefix(UTF8String prefix) {
            boolean[] found = nulls(false);
            for (int i = 0; i < found.length; i++) {
                // A greater lower bound that does not begin with the prefix is greater than all texts that do.
                found[i] |= lower.has(i) && lower.compare(i, prefix) > 0 && !lower.texts[i].startsWith(prefix)
                    || upper.has(i) && upper.compare(i, prefix) < 0;
            }
            return found;
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
}
