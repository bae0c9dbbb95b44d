"""The public category lists of the American Community Survey, and a reader for other
years' lists.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from flwr_dpkmeans.data.files.located import locate_file
from flwr_dpkmeans.errors import DataError

# Detailed occupations of the 2018 one-year file (Census occupation codes of 2018),
# military and unemployed included.
_OCCUPATIONS = """
0010 0020 0040 0051 0052 0060 0101 0102 0110 0120 0135 0136 0137 0140 0150 0160 0205
0220 0230 0300 0310 0335 0340 0350 0360 0410 0420 0425 0440 0500 0510 0520 0530 0540
0565 0600 0630 0640 0650 0700 0705 0710 0725 0726 0735 0750 0800 0810 0820 0830 0845
0850 0860 0900 0910 0930 0940 0960 1005 1006 1007 1010 1021 1022 1031 1032 1050 1065
1105 1106 1108 1200 1220 1240 1305 1306 1310 1320 1340 1350 1360 1400 1410 1420 1430
1440 1450 1460 1520 1530 1541 1545 1551 1555 1560 1600 1610 1640 1650 1700 1710 1720
1745 1750 1760 1800 1821 1822 1825 1840 1860 1900 1910 1920 1935 1970 1980 2001 2002
2003 2004 2005 2006 2011 2012 2013 2014 2015 2016 2025 2040 2050 2060 2100 2105 2145
2170 2180 2205 2300 2310 2320 2330 2350 2360 2400 2435 2440 2545 2555 2600 2631 2632
2633 2634 2635 2636 2640 2700 2710 2721 2722 2723 2740 2751 2752 2755 2770 2805 2810
2825 2830 2840 2850 2861 2862 2865 2905 2910 2920 3000 3010 3030 3040 3050 3090 3100
3110 3120 3140 3150 3160 3200 3210 3220 3230 3245 3250 3255 3256 3258 3261 3270 3300
3310 3321 3322 3323 3324 3330 3401 3402 3421 3422 3423 3424 3430 3500 3515 3520 3545
3550 3601 3602 3603 3605 3610 3620 3630 3640 3645 3646 3647 3648 3649 3655 3700 3710
3720 3725 3740 3750 3801 3802 3820 3840 3870 3900 3910 3930 3940 3945 3946 3960 4000
4010 4020 4030 4040 4055 4110 4120 4130 4140 4150 4160 4200 4210 4220 4230 4240 4251
4252 4255 4330 4340 4350 4400 4420 4435 4461 4465 4500 4510 4521 4522 4525 4530 4540
4600 4621 4622 4640 4655 4700 4710 4720 4740 4750 4760 4800 4810 4820 4830 4840 4850
4900 4920 4930 4940 4950 4965 5000 5010 5020 5040 5100 5110 5120 5140 5150 5160 5165
5220 5230 5240 5250 5260 5300 5310 5320 5330 5340 5350 5360 5400 5410 5420 5500 5510
5521 5522 5530 5540 5550 5560 5600 5610 5630 5710 5720 5730 5740 5810 5820 5840 5850
5860 5900 5910 5920 5940 6005 6010 6040 6050 6115 6120 6130 6200 6210 6220 6230 6240
6250 6260 6305 6330 6355 6360 6400 6410 6441 6442 6460 6515 6520 6530 6540 6600 6660
6700 6710 6720 6730 6740 6765 6800 6825 6835 6850 6950 7000 7010 7020 7030 7040 7100
7120 7130 7140 7150 7160 7200 7210 7220 7240 7260 7300 7315 7320 7330 7340 7350 7360
7410 7420 7430 7510 7540 7560 7610 7640 7700 7720 7730 7740 7750 7800 7810 7830 7840
7850 7855 7905 7925 7950 8000 8025 8030 8040 8100 8130 8140 8225 8250 8255 8256 8300
8310 8320 8335 8350 8365 8450 8465 8500 8510 8530 8540 8555 8600 8610 8620 8630 8640
8650 8710 8720 8730 8740 8750 8760 8800 8810 8830 8850 8910 8920 8930 8940 8950 8990
9005 9030 9040 9050 9110 9121 9122 9130 9141 9142 9150 9210 9240 9265 9300 9310 9350
9365 9410 9415 9430 9510 9570 9600 9610 9620 9630 9640 9645 9650 9720 9760 9800 9810
9825 9830 9920
"""

# Places of birth of the 2018 one-year file: states, territories, countries and "not
# specified" groups.
_PLACES = """
001 002 004 005 006 008 009 010 011 012 013 015 016 017 018 019 020 021 022 023 024 025
026 027 028 029 030 031 032 033 034 035 036 037 038 039 040 041 042 044 045 046 047 048
049 050 051 053 054 055 056 060 066 069 072 078 100 102 103 104 105 106 108 109 110 116
117 118 119 120 126 127 128 129 130 132 134 136 137 138 139 140 142 147 148 149 150 151
152 154 156 157 158 159 160 161 162 163 164 165 166 167 168 169 200 202 203 205 206 207
209 210 211 212 213 214 215 216 217 218 219 222 223 224 226 228 229 231 233 235 236 238
239 240 242 243 245 246 247 248 249 253 254 300 301 303 310 311 312 313 314 315 316 321
323 324 327 328 329 330 332 333 338 339 340 341 343 344 360 361 362 363 364 365 368 369
370 372 373 374 399 400 407 408 412 414 416 417 420 421 423 425 427 429 430 436 440 442
444 447 448 449 451 453 454 456 457 459 460 461 462 463 464 467 468 469 501 508 511 512
515 523 527 554
"""

CODEBOOK_2018: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        "SCHL": tuple(range(1, 25)),
        "MAR": tuple(range(1, 6)),
        "OCCP": tuple(int(code) for code in _OCCUPATIONS.split()),
        "POBP": tuple(int(code) for code in _PLACES.split()),
        "RELP": tuple(range(18)),
        "SEX": (1, 2),
        "RAC1P": tuple(range(1, 10)),
    }
)
"""The codes of each categorical column of ACSIncome in the PUMS data dictionary of
2018, except the class of worker.
"""

_STATE_NAMES = """
AL AK AZ AR CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV
NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY PR
"""
_STATE_NUMBERS = (
    *(number for number in range(1, 57) if number not in (3, 7, 14, 43, 52)),
    72,
)

STATES: Mapping[int, str] = MappingProxyType(
    dict(zip(_STATE_NUMBERS, _STATE_NAMES.split(), strict=True))
)
"""FIPS numbers with postal codes: the states, the District of Columbia and Puerto Rico.
"""


def read_codebook(path: str | Path) -> Mapping[str, Sequence[int]]:
    r"""Read the category lists from a PUMS data dictionary of the Census Bureau.

    Parameters
    ----------
    path : str or Path
        The .csv form of the dictionary, which folktables stores as ``definition.csv``:
        the rows that begin with ``VAL`` hold the name of a column and, in the fifth
        place, a code.

    Returns
    -------
    mapping of str to tuple of int
        The codes of each categorical column of ACSIncome in ascending order, without
        the one for missing values.

    Raises
    ------
    DataError
        If the file is missing or is no UTF-8 text, or a column has no codes in it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> rows = [f'VAL,{name},C,4,"0001","0001",first' for name in CODEBOOK_2018]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "definition.csv"
    ...     _ = file.write_text("\n".join(rows))
    ...     read_codebook(file)["OCCP"]
    (1,)
    """
    located = locate_file(path, "codebook", DataError)
    codes: dict[str, set[int]] = {name: set() for name in CODEBOOK_2018}
    try:
        with located.open(encoding="utf-8-sig", newline="") as lines:
            for row in csv.reader(lines):
                if (
                    len(row) > 4
                    and row[0] == "VAL"
                    and row[1] in codes
                    and row[4].strip().isdigit()
                ):
                    codes[row[1]].add(int(row[4]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"the codebook {str(located)!r} cannot be read ({type(error).__name__}),"
            " but it must be a .csv file in UTF-8: give the .csv form of the PUMS data"
            " dictionary."
        ) from error
    missing = [name for name, values in codes.items() if not values]
    if missing:
        raise DataError(
            f"the codebook {str(located)!r} has no codes for the column {missing[0]!r},"
            " but every categorical column needs some: give the .csv form of the PUMS"
            " data dictionary of 2018 or an earlier year."
        )
    return MappingProxyType(
        {name: tuple(sorted(values)) for name, values in codes.items()}
    )
