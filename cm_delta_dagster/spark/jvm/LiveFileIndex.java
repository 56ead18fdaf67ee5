/*
 * The live files of one table version as a FileIndex of Spark. Compiled in the JVM of the driver by Janino, which Spark
 * carries, together with the other sources of this folder; Janino knows neither generics nor lambdas. Executors never see these
 * classes.
 */
package cm_delta_dagster;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;

public final class LiveFileIndex implements FileIndex {

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
            Block[] blockArray = new Block[blocks.size()];
            for (int b = 0; b < blockArray.length; b++) {
                blockArray[b] = (Block) blocks.get(b);
            }
            boolean[] hasExtra = new boolean[extras.length];
            for (int e = 0; e < extras.length; e++) {
                hasExtra[e] = extras[e] != 0;
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
                identity, root, blockArray, withoutVectors, hasExtra, deleted, partitions, numbers, session, scalaOptions);
            // By reflection, since the type of the last parameter differs between versions of Spark.
            Object relation = HadoopFsRelation.class.getConstructors()[0].newInstance(new Object[] {
                index, partitions, DataType.fromJson(dataSchema), Option.apply(null), new ParquetFileFormat(), scalaOptions,
                session});
            return session.baseRelationToDataFrame((BaseRelation) relation);
        }
    }

    public Seq rootPaths() {
        return seq(new Object[] {Block.hadoopPath(root)});
    }

    public StructType partitionSchema() {
        return partitionSchema;
    }

    public long sizeInBytes() {
        return sizeInBytes;
    }

    public String[] inputFiles() {
        List names = new ArrayList();
        for (int b = 0; b < blocks.length; b++) {
            for (int row = 0; row < blocks[b].numFiles; row++) {
                if (includes(blocks[b], row)) {
                    names.add(Block.hadoopPath(blocks[b].path(row)).toUri().toString());
                }
            }
        }
        return (String[]) names.toArray(new String[0]);
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
                excluded = Skipping.or(excluded, new Skipping(block, statistics).excluded(filters[f], false));
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
        long[] lengths = new FileLengths(blocks, session, options).of(places);
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
        Object[] partitionDirectories = new Object[byDirectory.size()];
        Iterator entries = byDirectory.entrySet().iterator();
        for (int d = 0; d < partitionDirectories.length; d++) {
            Map.Entry entry = (Map.Entry) entries.next();
            partitionDirectories[d] = new PartitionDirectory((InternalRow) entry.getKey(), seq(((List) entry.getValue()).toArray()));
        }
        return seq(partitionDirectories);
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
        Expression[] conditions = expressions(filters);
        BasePredicate[] predicates = new BasePredicate[conditions.length];
        for (int f = 0; f < conditions.length; f++) {
            predicates[f] = Predicate$.MODULE$.createInterpreted(bound(conditions[f]));
            predicates[f].initialize(0);
        }
        return predicates;
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

    private static int count(boolean[] flags) {
        int number = 0;
        for (int f = 0; f < flags.length; f++) {
            number += flags[f] ? 1 : 0;
        }
        return number;
    }

    private static Expression[] expressions(Seq filters) {
        Object[] children = scala.jdk.javaapi.CollectionConverters.asJava(filters).toArray();
        Expression[] expressions = new Expression[children.length];
        System.arraycopy(children, 0, expressions, 0, children.length);
        return expressions;
    }

    static Seq seq(Object[] values) {
        return (Seq) scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(values);
    }
}
