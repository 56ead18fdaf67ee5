/*
 * Which length the files of a scan have in storage.
 */
package cm_delta_dagster;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
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
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.classic.SparkSession;

/** The length of each file in storage, and that each file is there. */
final class FileLengths {

    private static final int THREADS = 32;
    private static final int LISTED_FILES = 8;
    private static final int LOCAL_FILES = 4096;
    private static final int LISTED_SHARE = 20;

    private final Block[] blocks;
    private final SparkSession session;
    private final scala.collection.immutable.Map options;

    FileLengths(Block[] blocks, SparkSession session, scala.collection.immutable.Map options) {
        this.blocks = blocks;
        this.session = session;
        this.options = options;
    }

    /**
     * The length of each file in storage. Spark reads only the row groups that begin within the length that it is given, so
     * that a length that is too small would lose rows.
     */
    long[] of(Places places) {
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
                    systems.put(place, Block.hadoopPath(name).getFileSystem(configuration));
                    some = new ArrayList();
                    byPlace.put(place, some);
                }
                some.add(Integer.valueOf(i));
            }
            Iterator entries = byPlace.entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry entry = (Map.Entry) entries.next();
                FileSystem system = (FileSystem) systems.get(entry.getKey());
                List indices = (List) entry.getValue();
                if (system instanceof LocalFileSystem || system instanceof RawLocalFileSystem) {
                    checkLocal(system, indices, places, lengths);
                } else {
                    verify(system, indices, places, lengths);
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
    private static void checkLocal(FileSystem system, List indices, Places places, long[] lengths) throws IOException {
        int processors = Runtime.getRuntime().availableProcessors();
        int size = Math.max(LOCAL_FILES, (indices.size() + processors - 1) / processors);
        List tasks = new ArrayList();
        for (int first = 0; first < indices.size(); first += size) {
            List part = indices.subList(first, Math.min(first + size, indices.size()));
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
        private final List indices;
        private final Places places;
        private final long[] lengths;

        LocalCheck(FileSystem system, List indices, Places places, long[] lengths) {
            this.system = system;
            this.indices = indices;
            this.places = places;
            this.lengths = lengths;
        }

        public Object call() throws IOException {
            for (int w = 0; w < indices.size(); w++) {
                int i = ((Integer) indices.get(w)).intValue();
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
        if (length == 0 && !system.exists(Block.hadoopPath(name))) {
            throw new FileNotFoundException("The data file " + name + " is missing. It is part of the table's version; restore"
                + " it, or read a version that does not need it.");
        }
        if (length != size && !endsAsParquet(system, Block.hadoopPath(name), length)) {
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
    private void verify(FileSystem system, List indices, Places places, long[] lengths) throws IOException {
        Map live = new HashMap();
        for (int b = 0; b < blocks.length; b++) {
            blocks[b].countDirectories(live);
        }
        Map directories = new LinkedHashMap();
        for (int w = 0; w < indices.size(); w++) {
            int i = ((Integer) indices.get(w)).intValue();
            String name = places.block(i).path(places.row(i));
            String directory = name.substring(0, name.lastIndexOf('/'));
            Map files = (Map) directories.get(directory);
            if (files == null) {
                files = new HashMap();
                directories.put(directory, files);
            }
            files.put(name.substring(directory.length() + 1), indices.get(w));
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
                Iterator iterator = files.entrySet().iterator();
                while (iterator.hasNext()) {
                    Map.Entry file = (Map.Entry) iterator.next();
                    Map single = new HashMap();
                    single.put(file.getKey(), file.getValue());
                    tasks.add(new Request(system, (String) entry.getKey(), single, false, lengths));
                }
            }
        }
        run(tasks);
        for (int w = 0; w < indices.size(); w++) {
            int i = ((Integer) indices.get(w)).intValue();
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
                    Path path = Block.hadoopPath(directory + "/" + file.getKey());
                    lengths[((Integer) file.getValue()).intValue()] = system.getFileStatus(path).getLen();
                }
            } catch (FileNotFoundException error) {
                return null;
            }
            return null;
        }

        private void list() throws IOException {
            int left = files.size();
            RemoteIterator listed = system.listStatusIterator(Block.hadoopPath(directory));
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
        Iterator iterator = systems.values().iterator();
        while (iterator.hasNext()) {
            FileSystem system = (FileSystem) iterator.next();
            if (configuration.getBoolean("fs." + system.getUri().getScheme() + ".impl.disable.cache", false)) {
                try {
                    system.close();
                } catch (IOException error) {
                    // Nothing was written through it.
                }
            }
        }
    }

    /** Scheme and authority. */
    private static String place(String name) {
        int scheme = name.indexOf("://");
        return scheme < 0 ? "" : name.substring(0, Math.max(scheme + 3, name.indexOf('/', scheme + 3)));
    }
}
