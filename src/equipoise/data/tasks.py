"""The catalogue of data sets, each a declaration."""

from __future__ import annotations

from collections.abc import Mapping

from . import forms
from .task import Column, File, Grouping, Task, levels, numeric

__all__ = ["TASKS"]

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

_GERMAN = Task(
    name="german",
    title="Statlog German Credit",
    columns=(
        Column("checking", {"A11": "below 0 DM", "A12": "0 to 200 DM", "A13": "200 DM or more", "A14": "no account"}),
        *numeric("duration"),
        Column("history", {
            "A30": "no credits or all paid back", "A31": "all credits here paid back", "A32": "existing credits paid back so far",
            "A33": "delay in the past", "A34": "critical account or credits elsewhere",
        }),
        Column("purpose", {
            "A40": "new car", "A41": "used car", "A42": "furniture", "A43": "radio or television", "A44": "appliances",
            "A45": "repairs", "A46": "education", "A47": "holiday", "A48": "retraining", "A49": "business", "A410": "other",
        }),
        *numeric("amount"),
        Column("savings", {"A61": "below 100 DM", "A62": "100 to 500 DM", "A63": "500 to 1,000 DM", "A64": "1,000 DM or more", "A65": "unknown or none"}),
        Column("employment", {"A71": "unemployed", "A72": "below 1 year", "A73": "1 to 4 years", "A74": "4 to 7 years", "A75": "7 years or more"}),
        *numeric("instalment_rate"),
        Column("personal_status", {
            "A91": "male, divorced or separated", "A92": "female, divorced, separated or married", "A93": "male, single",
            "A94": "male, married or widowed", "A95": "female, single",
        }),
        Column("debtors", {"A101": "none", "A102": "co-applicant", "A103": "guarantor"}),
        *numeric("residence"),
        Column("property", {"A121": "real estate", "A122": "savings agreement or life insurance", "A123": "car or other", "A124": "unknown or none"}),
        *numeric("age"),
        Column("other_plans", {"A141": "bank", "A142": "stores", "A143": "none"}),
        Column("housing", {"A151": "rent", "A152": "own", "A153": "for free"}),
        *numeric("credits"),
        Column("job", {"A171": "unemployed or unskilled, non-resident", "A172": "unskilled, resident", "A173": "skilled or official", "A174": "management or highly qualified"}),
        *numeric("liable"),
        Column("telephone", {"A191": "none", "A192": "yes"}),
        Column("foreign", {"A201": "yes", "A202": "no"}),
    ),
    target="class",
    labels={"1": 1, "2": 0},
    meaning="good credit risk (class 1 of the file; class 2 is bad)",
    favourable="credit granted: rated a good risk",
    favourable_is="positive",
    groupings={
        "personal_status": Grouping(
            "personal_status", {"A91 or A93": ("A91", "A93"), "A92, A94 or A95": ("A92", "A94", "A95")}, "A92, A94 or A95",
            note="grouping of the Fairis paper: codes A91 and A93 of attribute 9 are unprivileged, all others privileged",
        ),
        "sex": Grouping(
            "personal_status", {"female": ("A92", "A95"), "male": ("A91", "A93", "A94")}, "male",
            note="sex is read off attribute 9 (A92 and A95 female); by Groemping's correction that code table is wrong, so sex is unreliable here",
        ),
        "age": Grouping("age", {"25 or younger": (), "over 25": ()}, "over 25", (25,)),
        "foreign": Grouping("foreign", {"foreign worker": ("A201",), "not foreign": ("A202",)}, "not foreign"),
    },
    rows=1000,
    dropped="none",
    faults=(
        "1 = good = favourable, 2 = bad: the file's label 2 is not the positive class",
        "sex is derived from personal-status codes; a published correction (Groemping 2019) says that the code table shipped with "
        "the Statlog file is wrong (A92 also holds single men, for one), so sex is unreliable there",
        "the code table lists A95 (female, single) and A47 (holiday); neither occurs in the file",
        "by the same correction other codes are wrong as well; foreign has A201 for 963 of 1,000 rows",
        "it holds granted credits only: no rejected applicant is in it",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data",
    citation="Hofmann (1994), Statlog (German Credit Data), UCI; corrections: Groemping (2019), South German Credit Data, Beuth Hochschule Berlin, report 4/2019",
    files=(File("german.data", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871", f"{UCI}/statlog/german/german.data"),),
    read=forms.german,
)  # fmt: skip

_ADULT = Task(
    name="adult",
    title="Adult (census income, 1994)",
    columns=(
        *numeric("age"),
        levels("workclass", "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay", "Never-worked", missing="?"),
        Column("fnlwgt", used=False, why="a sampling weight of the census, not an attribute of the person"),
        levels(
            "education", "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college",
            "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
        ),
        *numeric("education-num"),
        levels(
            "marital-status", "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
            "Married-AF-spouse",
        ),
        levels(
            "occupation", "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
            "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving", "Priv-house-serv",
            "Protective-serv", "Armed-Forces", missing="?",
        ),
        levels("relationship", "Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
        levels("race", "White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
        levels("sex", "Female", "Male"),
        *numeric("capital-gain", "capital-loss", "hours-per-week"),
        levels(
            "native-country", "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany",
            "Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines",
            "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos",
            "Ecuador", "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
            "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", missing="?",
        ),
    ),
    target="income",
    labels={"<=50K": 0, ">50K": 1},
    meaning="income above 50,000 dollars a year",
    favourable="predicted to earn above 50,000 dollars a year",
    favourable_is="positive",
    groupings={
        "sex": Grouping("sex", {"female": ("Female",), "male": ("Male",)}, "male"),
        "race": Grouping("race", {
            "White": ("White",), "Black": ("Black",), "Asian-Pac-Islander": ("Asian-Pac-Islander",),
            "Amer-Indian-Eskimo": ("Amer-Indian-Eskimo",), "Other": ("Other",),
        }, "White"),
        "white": Grouping("race", {"not White": ("Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"), "White": ("White",)}, "White"),
        "age": Grouping("age", {"25 or younger": (), "over 25 to 60": (), "over 60": ()}, "over 25 to 60", (25, 60)),
    },
    rows=32561,
    dropped="rows with a missing cell ('?'): 2,399 of the training part's 32,561, so that 30,162 are left (15,060 of the test part); incomplete = \"keep\" keeps them",
    faults=(
        "labels of adult.test end with a dot ('>50K.'), and its first line is a comment",
        "a space follows each comma; '?' marks a missing cell",
        "education-num repeats education as a number",
        "the level spelt 'Columbia' is Colombia, 'South' is most likely South Korea, 'Hong' is Hong Kong",
    ),
    licence="CC BY 4.0 (UCI)",
    source="https://archive.ics.uci.edu/dataset/2/adult",
    citation="Kohavi and Becker (1996), Adult, UCI",
    files=(
        File("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", f"{UCI}/adult/adult.data"),
        File("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", f"{UCI}/adult/adult.test"),
    ),
    read=forms.adult,
    options={"part": ("train", "test", "both"), "incomplete": ("drop", "keep")},
)  # fmt: skip

TASKS: Mapping[str, Task] = {task.name: task for task in (_GERMAN, _ADULT)}
